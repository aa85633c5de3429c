"""The table of models that people train, filled by the modules of this folder.

Each is a function that builds and compiles a small model and says what to fit
it on. They know nothing of strategies: `measuring.py` runs each as it is and in
a strategy's scope.
"""

import contextlib
import dataclasses

import keras
import numpy as np

from tests.parity.cases import Case, Program

MODELS = {}


@dataclasses.dataclass(frozen=True)
class Model(Case):
    """A named program, and how closely replicas must follow one device.

    Attributes:
        precision: Keras's `floatx` while it is built and trained. In float64
            all that is no rounding shows; programs that have to do with
            float32 itself, or with less, say so.
        tolerance: Largest distance of `parity.harness.distances` that is
            rounding.
        why: Reason for another tolerance than that of the precision.
        evaluates: Whether the trained model is evaluated.
        predicts: Whether it predicts.
        jit_compile: Whether XLA compiles it.
        in_suite: Whether pytest runs it; all are run by `python -m
            tests.models`.
        replica_counts: Numbers of replicas in the suite.
    """

    precision: str = "float64"
    why: str = ""
    evaluates: bool = False
    predicts: bool = False
    jit_compile: bool = False
    in_suite: bool = False

    @contextlib.contextmanager
    def in_precision(self):
        """Keras's defaults are those of the program inside."""
        keras.config.set_floatx(self.precision)
        keras.config.set_dtype_policy(self.precision)
        try:
            yield
        finally:
            keras.config.set_floatx("float32")
            keras.config.set_dtype_policy("float32")


_ROUNDING = {"float64": 1e-7, "float32": 1e-4}


def model(group, name=None, precision="float64", tolerance=None, **settings):
    """Registers a function that makes a `Program`; see `Model`."""
    settings.setdefault("replica_counts", (3,))
    if tolerance is None:
        tolerance = _ROUNDING[precision]
    elif not settings.get("why"):
        raise ValueError(f"No reason for {tolerance=} of {group}, {name}")

    def register(make):
        called = name or make.__name__.replace("_", " ")
        if called in MODELS:
            raise ValueError(f"There are two models called {called!r}.")
        MODELS[called] = Model(
            called,
            group,
            make,
            tolerance=tolerance,
            precision=precision,
            **settings,
        )
        return make

    return register


def generator(seed=0):
    """A source of random arrays."""
    return np.random.default_rng(seed)


def reals(*shape, seed=0):
    """Normal numbers of Keras's default type."""
    return generator(seed).normal(size=shape).astype(keras.config.floatx())


def images(*shape, seed=0):
    """Pixels from 0 to 1 of Keras's default type."""
    return generator(seed).uniform(size=shape).astype(keras.config.floatx())


def integers(below, *shape, seed=0, lowest=0):
    """Integers from `lowest` up to but without `below`."""
    return generator(seed).integers(lowest, below, size=shape).astype("int32")


def sentences(vocabulary, count, length, seed=0):
    """Tokens, 0 behind the end of each sentence; some have one token only."""
    tokens = integers(vocabulary, count, length, seed=seed, lowest=1)
    lengths = integers(length + 1, count, 1, seed=seed + 1, lowest=1)
    return np.where(np.arange(length) < lengths, tokens, 0).astype("int32")


def fitted(model, x, y=None, batch_size=4, epochs=2, predict=None, **more):
    """A program on arrays in the given order.

    Their number should leave one row for the last batch: 9 rows in batches of
    4 on three replicas are shares of 2, 1, 1; 2, 1, 1; 1, 0, 0.
    """
    fit = dict(x=x, batch_size=batch_size, epochs=epochs, shuffle=False, **more)
    if y is not None:
        fit["y"] = y
    return Program(model, fit, x if predict is None else predict)


__all__ = [
    "MODELS",
    "Model",
    "Program",
    "fitted",
    "generator",
    "images",
    "integers",
    "model",
    "reals",
    "sentences",
]
