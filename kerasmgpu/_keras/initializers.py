"""Makes Keras's initializers return values of which each part is made by itself.

Where a sharded variable is created, and its initializer is one of Keras's that
fill it or draw each element from one distribution, a `ValueInParts` is returned
instead of a tensor. All others make the whole value: Keras's that aren't listed
here (`Orthogonal` factorises a whole matrix), and a program's own. Checked on
Keras 3.10 and 3.15.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import random

from kerasmgpu._keras.versions import TensorFlowVariable
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.runtime.initial_values import (
    Drawn,
    Filled,
    asks_for_parts,
)

_FILL = (
    keras.initializers.Constant,
    keras.initializers.Ones,
    keras.initializers.Zeros,
)
_DRAW = (
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
    keras.initializers.VarianceScaling,
)
"""Initializers that return what one function of `keras.random` returns."""

_KINDS = {"filled": _FILL, "drawn": _DRAW}

_thread = threading.local()


@seam(TensorFlowVariable, "_initialize_with_initializer")
def _initialize(
    original: Original, self: Any, initializer: Callable[..., Any]
) -> None:
    self._kerasmgpu_initial = "whole"
    for name, kinds in _KINDS.items():
        if _calls_one_of(initializer, kinds):
            self._kerasmgpu_initial = name
    original(self, lambda *args, **kwargs: _value(initializer, *args, **kwargs))


def kind_of(variable: keras.Variable) -> str:
    """Returns how a variable's initial value was made.

    Returns:
        String: `"filled"`, `"drawn"`, or `"whole"` for all other initializers,
        values that were given, and variables that were created before a
        strategy was.
    """
    return getattr(variable, "_kerasmgpu_initial", "whole")


def _value(
    initializer: Callable[..., Any], shape: Any, dtype: str | None = None
) -> Any:
    """Returns the value of an initializer, in parts if they are asked for."""
    if asks_for_parts():
        if _calls_one_of(initializer, _FILL):
            state = initializer((), dtype=dtype)
            if not state.shape.rank:  # A constant may be an array.
                return Filled(state, shape, state.dtype)
        elif _calls_one_of(initializer, _DRAW):
            with _drawing():
                return initializer(shape, dtype=dtype)
    return initializer(shape, dtype=dtype)


def _calls_one_of(initializer: Any, kinds: tuple[type, ...]) -> bool:
    """Whether an initializer is called as one of some classes."""
    call = type(initializer).__call__
    return any(call is kind.__call__ for kind in kinds)


@contextlib.contextmanager
def _drawing() -> Iterator[None]:
    _thread.draws = True
    try:
        yield
    finally:
        _thread.draws = False


def _draws() -> bool:
    return getattr(_thread, "draws", False)


def _drawn(
    distribution: str, shape: Any, dtype: str | None, seed: Any, *scale: Any
) -> Drawn:
    state = random._cast_seed(random.draw_seed(seed))
    return Drawn(distribution, state, shape, dtype or random.floatx(), *scale)


@seam(random, "uniform")
def _uniform(
    original: Original,
    shape: Any,
    minval: Any = 0.0,
    maxval: Any = 1.0,
    dtype: str | None = None,
    seed: Any = None,
) -> Any:
    if not _draws():
        return original(shape, minval, maxval, dtype, seed)
    least = tf.cast(minval, dtype or random.floatx())
    width = tf.cast(maxval, least.dtype) - least
    return _drawn("uniform", shape, dtype, seed, width, least)


def _seam_of_normal(name: str) -> None:
    @seam(random, name)
    def normal(
        original: Original,
        shape: Any,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: str | None = None,
        seed: Any = None,
    ) -> Any:
        if not _draws():
            return original(shape, mean, stddev, dtype, seed)
        return _drawn(name, shape, dtype, seed, stddev, mean)


for _name in ("normal", "truncated_normal"):
    _seam_of_normal(_name)
