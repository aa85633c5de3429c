"""The registry of programs whose training on replicas must be one device's.

Modules of programs fill it: each registers functions that build and compile a
small model and say what to fit it on. They know nothing of strategies.
"""

import contextlib
import dataclasses
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import keras

_MODULES = {
    "parity": "parity",
    "models": "models",
    "keras_io": "keras_io",
    "reports": "keras_io",
    "keras_hub": "keras_hub",
}
"""Module, or package of modules, that registers the programs of a table."""

_cases = {table: {} for table in _MODULES}
_TOLERANCES = {"float64": 1e-7, "float32": 1e-4}
_KERAS, _GITHUB = "https://keras.io/", "https://github.com/"


@dataclasses.dataclass
class Program:
    """What one case fits, evaluates, predicts and continues.

    Attributes:
        model: Compiled model.
        fit: Arguments of `fit`.
        predict: Argument of `predict`; `None` for no prediction.
        evaluate: Arguments of `evaluate`. Default: those of `fit`.
        prompt: What `generate` continues; `None` for models that don't.
    """

    model: keras.Model
    fit: dict
    predict: Any = None
    evaluate: dict | None = None
    prompt: dict | None = None


@dataclasses.dataclass(frozen=True)
class Case:
    """A named program, and how closely replicas must follow one device.

    Attributes:
        name: Name in the table.
        group: Subject.
        make: Function that makes its `Program`; in the tables `keras_io` and
            `reports` one that builds, trains and keeps results of a
            `keras_io.run.Run`.
        precision: Keras's dtype policy, and by it `floatx`, while it is built
            and trained; `None` leaves them. In float64 all that is no rounding
            shows.
        tolerance: Largest distance that is rounding.
        why: Reason for another tolerance than that of the precision.
        by_weight: Whether a weight's difference is relative to its own
            largest update, not to that of all.
        evaluates: Whether the trained model is evaluated.
        predicts: Whether it predicts.
        jit_compile: Whether XLA compiles it; `None` leaves it to Keras.
        in_suite: Whether pytest runs it.
        replica_counts: Numbers of replicas for pytest.
        layouts: Function that takes a `keras.distribution.DeviceMesh` with the
            axes `"batch"` and `"model"`, and returns a `LayoutMap`, or `None`.
        url: Page of the example, or the bug report, that the program is after.
    """

    name: str
    group: str
    make: Callable
    precision: str | None = None
    tolerance: float = 1e-5
    why: str = ""
    by_weight: bool = True
    evaluates: bool = False
    predicts: bool = False
    jit_compile: bool | None = None
    in_suite: bool = False
    replica_counts: tuple = (3,)
    layouts: Callable = lambda mesh: None
    url: str = ""

    @property
    def is_script(self):
        """Whether `make` takes a `keras_io.run.Run`."""
        return bool(self.url)

    @contextlib.contextmanager
    def in_precision(self):
        """Keras's defaults are those of the program inside."""
        if self.precision is None:
            yield
            return
        is_double = self.precision == "float64"
        keras.config.set_floatx("float64" if is_double else "float32")
        keras.config.set_dtype_policy(self.precision)
        try:
            yield
        finally:
            keras.config.set_floatx("float32")
            keras.config.set_dtype_policy("float32")

    @property
    def title(self):
        """Its name in the table, with a link."""
        if self.url.startswith(_GITHUB):
            called = "#".join(self.url.removeprefix(_GITHUB).split("/issues/"))
            reported = self.make.__doc__.removeprefix("Reported: ")
            title = f"[{called}]({self.url}): {self.name}: {reported}"
        elif self.url:
            title = f"{self.group}: [{self.name}]({self.url})"
        else:
            title = f"{self.group}: {self.name}"
        if self.precision not in (None, "float64"):
            return f"{title} ({self.precision})"
        return title + (" †" if self.why else "")


def cases(table):
    """Returns the cases of a table by name."""
    if table not in _MODULES:
        from benchmarks.exactness.keras_own import files

        return {
            name: Case(name, group, None)
            for name, group in files.modules(table).items()
        }
    module = importlib.import_module(f"{__package__}.{_MODULES[table]}")
    for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
        importlib.import_module(f"{module.__name__}.{found.name}")
    return _cases[table]


def parity(group, **settings):
    """Registers a case of the parity table."""
    settings = {"tolerance": 1e-5, "replica_counts": (4,), **settings}
    return _registered(
        "parity",
        group,
        precision=None,
        by_weight=False,
        evaluates=True,
        predicts=True,
        **settings,
    )


def model(group, name=None, jit_compile=False, **settings):
    """Registers a model that people train."""
    return _registered(
        "models", group, name, jit_compile=jit_compile, **settings
    )


def example(page, **settings):
    """Registers a program after the example at a path below `keras.io`."""
    return _registered("keras_io", url=f"{_KERAS}{page}/", **settings)


def report(repository, number, **settings):
    """Registers a program that does what a bug report is about."""
    url = f"{_GITHUB}{repository}/issues/{number}"
    return _registered("reports", url=url, **settings)


def family(name, make=None, float32="", **settings):
    """Registers a family of KerasHub's or keras-rs's models.

    Args:
        name: Name in the table, as KerasHub's folder is called.
        make: See `Case`; `family` is a decorator without it.
        float32: Why parts compute in float32, whatever Keras's `floatx`.
        **settings: Attributes of `Case`.
    """
    if float32:
        settings.update(tolerance=_TOLERANCES["float32"], why=float32)
    register = _registered(
        "keras_hub", name=name, jit_compile=False, **settings
    )
    return register if make is None else register(make)


def _registered(
    table, group=None, name=None, precision="float64", tolerance=None, **more
):
    if tolerance is None:
        tolerance = _TOLERANCES[precision]
    elif table != "parity" and not more.get("why"):
        raise ValueError(f"No reason for {tolerance=} of {group}, {name}")

    def register(make):
        called = name or make.__name__.replace("_", " ")
        if called in _cases[table]:
            raise ValueError(f"There are two programs called {called!r}.")
        subject = group or make.__module__.rpartition(".")[2]
        if table == "keras_hub":
            subject = subject.replace("_", " ")
        _cases[table][called] = Case(
            called, subject, make, precision, tolerance, **more
        )
        return make

    return register
