"""Converts distributed variables to Python numbers and NumPy arrays.

For example `int(model.optimizer.iterations)` in a callback. TensorFlow's plain
variables support it. Its distributed variables have no `__int__` or
`__float__`, and inside a strategy's scope scalars don't convert to arrays.
(`bool` of one is always true, which TensorFlow relies on; it is not patched.)
Checked on TensorFlow 2.18 and 2.21.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from kerasmgpu.engine.private_names import DistributedVariable
from kerasmgpu.engine.seams import attribute


def _through(kind: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that converts a variable's value to `kind`."""

    def convert(self: Any) -> Any:
        return kind(tf.convert_to_tensor(self))

    return convert


def _array(
    self: Any, dtype: Any = None, copy: bool | None = None
) -> np.ndarray:
    # NumPy 1 has no `copy=None`; the array made here is always a new one.
    del copy
    return np.array(tf.convert_to_tensor(self), dtype=dtype)


for _kind in (int, float, complex):
    attribute(DistributedVariable, f"__{_kind.__name__}__", _through(_kind))
attribute(DistributedVariable, "__array__", _array)
