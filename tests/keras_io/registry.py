"""The tables of programs after keras.io's examples and after bug reports."""

import contextlib
import dataclasses
import random
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tests.keras_io import jobs
from tests.parity import harness

EXAMPLES = {}

BATCH_SIZE = 6
ROWS = 26
"""Four batches of 6 rows and one of 2: all divide on two replicas, so that stock
TensorFlow's mean of means is a mean; on three the last one does not."""


@dataclasses.dataclass(frozen=True)
class Example:
    """A program after one of keras.io's examples, or after a bug report.

    Attributes:
        name: Name in the table.
        group: Subject; the module that it is in.
        url: The example's page, or the report.
        program: Function of a `Run` that builds, trains and keeps results.
        precision: Keras's `floatx`.
        tolerance: Largest distance that is rounding.
        in_suite: Whether pytest runs it.
    """

    name: str
    group: str
    url: str
    program: Callable
    precision: str
    tolerance: float
    in_suite: bool

    @property
    def is_report(self):
        """Whether somebody reported it as a bug."""
        return self.url.startswith(_GITHUB)

    @property
    def title(self):
        """Its name, with a link, for the table."""
        if self.is_report:
            called = "#".join(self.url.removeprefix(_GITHUB).split("/issues/"))
            reported = self.program.__doc__.removeprefix("Reported: ")
            title = f"[{called}]({self.url}): {self.name}: {reported}"
        else:
            title = f"{self.group}: [{self.name}]({self.url})"
        if self.precision != "float64":
            title += f" ({self.precision})"
        return title


_GITHUB = "https://github.com/"
_TOLERANCES = {"float64": 1e-7, "float32": 1e-4}


def report(repository, number, **settings):
    """Registers a function of a `Run` that does what a report is about."""
    return _registered(f"{_GITHUB}{repository}/issues/{number}", **settings)


def example(page, **settings):
    """Registers a function of a `Run`; see `Example`.

    Args:
        page: Path of the example below `https://keras.io/`.
        **settings: Attributes of `Example`.
    """
    return _registered(f"https://keras.io/{page}/", **settings)


def _registered(url, precision="float64", in_suite=False):
    def register(program):
        name = program.__name__.replace("_", " ")
        if name in EXAMPLES:
            raise ValueError(f"There are two examples called {name!r}.")
        group = program.__module__.rsplit(".", 1)[-1]
        EXAMPLES[name] = Example(
            name,
            group,
            url,
            program,
            precision,
            _TOLERANCES[precision],
            in_suite,
        )
        return program

    return register


class Run:
    """One run of an example: the devices it trains on, and what it ends with.

    Args:
        strategy: Strategy in whose scope it builds, or `None` for one device.
        partition: Function that makes a hand-written step run on the
            strategy's replicas. Default: `tf.function`.
    """

    def __init__(self, strategy=None, partition=tf.function):
        self._strategy, self._partition = strategy, partition
        self._models, self._before = [], []
        self._history, self._kept = [], {}
        self._witness = harness.Witness()

    def scope(self):
        """Where models, metrics and optimizers are made."""
        if self._strategy is None:
            return contextlib.nullcontext()
        return self._strategy.scope()

    def step(self, function):
        """A training step written by hand, to be called in the scope."""
        return self._partition(function)

    def fit(
        self, model, x, y=None, *, callbacks=(), jit_compile=False, **settings
    ):
        """`model.fit` with small defaults; returns its history."""
        self.watch(model)
        # On one device Keras would have chosen XLA, which takes long.
        model.jit_compile = jit_compile
        if not isinstance(x, (tf.data.Dataset, keras.utils.PyDataset)):
            settings.setdefault("batch_size", BATCH_SIZE)
        settings = {"epochs": 2, "verbose": 0, **settings}
        callbacks = [*callbacks, self._witness]
        history = model.fit(x, y, callbacks=callbacks, **settings).history
        self._history.append(history)
        return history

    def watch(self, model):
        """Has a model's weights compared at the end."""
        if all(model is not other for other in self._models):
            self._models.append(model)
            self._before.append([np.copy(w) for w in model.get_weights()])

    def keep(self, **values):
        """Has results compared: metrics, predictions, losses."""
        self._kept.update(values)

    def job(self, program):
        """Has what a program prints compared; see `jobs.outputs`."""
        starter, count = "alone", 1
        if self._strategy is not None:
            count = self._strategy.num_replicas_in_sync
            stock = type(self._strategy) is tf.distribute.MirroredStrategy
            starter = "stock" if stock else "kerasmgpu"
        printed = jobs.outputs(program, starter, count)
        self._kept.update(printed=[np.array(value) for value in printed])

    def outcome(self):
        """What the run ended with, as `harness.Outcome`."""
        before, weights = [], []
        for model, first in zip(self._models, self._before, strict=True):
            last = model.get_weights()
            # A model that fit builds starts from the same seed in all runs.
            if len(first) != len(last):
                first = [np.zeros_like(weight) for weight in last]
            before += first
            weights += last
        return harness.Outcome(
            before,
            weights,
            self._history,
            [],
            None,
            self._kept,
            False,
            self._witness.spread,
        )


def outcome(chosen, *run):
    """Runs an example from a fixed seed; see `Run` for the arguments."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(7)
    random.seed(7)
    keras.config.set_floatx(chosen.precision)
    keras.config.set_dtype_policy(chosen.precision)
    try:
        this = Run(*run)
        chosen.program(this)
        return this.outcome()
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
