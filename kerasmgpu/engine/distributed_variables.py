"""Lets variables with a copy per replica convert to numbers, slice and sum.

Each patch replaces a method of TensorFlow's `DistributedVariable`, or a
function that assigns to such a variable. Checked on TensorFlow 2.18 and 2.21.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.private_names import DistributedVariable, values_util
from kerasmgpu.engine.seams import Original, attribute, seam
from kerasmgpu.partitioner.runtime.one_device import is_sum

# Numbers and arrays, for example `int(model.optimizer.iterations)` in a callback.
# TensorFlow's plain variables support it. Its distributed variables have no
# `__int__` or `__float__`, and inside a strategy's scope scalars don't convert
# to arrays. (`bool` of a distributed variable is always true, which TensorFlow
# relies on; it is not patched.)


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


@seam(DistributedVariable, "__getitem__")
def _getitem(original: Original, self: Any, key: Any) -> Any:
    """Returns a slice whose `assign` updates all copies: `v[1:3].assign(…)`.

    TensorFlow slices the value of one copy. In a cross-replica context that
    slice has no `assign`; outside of the scope its `assign` updates one copy.
    """
    in_replica = not tf.distribute.in_cross_replica_context()
    if (
        (in_replica and tf.distribute.has_strategy())
        or not is_ours(self.distribute_strategy)
        or is_sum(self)
    ):
        return original(self, key)
    return tf.Variable.__getitem__(self, key)


# Sums over the replicas, such as metrics: the assigned value goes to the first
# replica, and zeros to the others. TensorFlow assigns or restores an equal share
# on every replica, rounded: integer counts lose the remainder, and `IoU` outside
# of a step counts nothing at all. It refuses `assign_add`, even where Keras only
# infers shapes.


def _on_the_first(
    update: Callable[..., Any],
    original: Original,
    var: Any,
    value: Any,
    read_value: bool = True,
) -> Any:
    strategy = var.distribute_strategy
    # Outside of scopes TensorFlow's default strategy is in replica context.
    inside = tf.distribute.has_strategy()
    whole = tf.distribute.in_cross_replica_context() or not inside
    if not (whole and is_ours(strategy) and is_sum(var)):
        return original(var, value, read_value)
    done = update(var, value)
    if not read_value:
        return done
    with tf.control_dependencies([done]):
        return var.read_value()


@seam(values_util, "get_on_read_restore_ops")
def _restore(
    original: Original, var: Any, tensor: Any, aggregation: Any
) -> Any:
    if not (is_ours(var.distribute_strategy) and is_sum(var)):
        return original(var, tensor, aggregation)
    return _assigned(var, tensor)


def _assigned(variable: Any, value: Any) -> Any:
    """Assigns a value to the job's first copy, and zeros to the others."""
    value = tf.cast(value, variable.dtype)
    updates = []
    for number, copy in _copies(variable):
        with tf.device(copy.device):
            part = value if number == 0 else tf.zeros_like(value)
            updates.append(copy.assign(part, read_value=False))
    return tf.group(*updates)


def _added(variable: Any, value: Any) -> Any:
    """Adds a value to the job's first copy."""
    value = tf.cast(value, variable.dtype)
    updates = []
    for number, copy in _copies(variable):
        if number == 0:
            with tf.device(copy.device):
                updates.append(copy.assign_add(value, read_value=False))
    return tf.group(*updates)


def _subtracted(variable: Any, value: Any) -> Any:
    return _added(variable, -tf.cast(value, variable.dtype))


def _copies(variable: DistributedVariable) -> Iterator[tuple[int, Any]]:
    """Yields `(global replica index, copy)` of this process's copies."""
    first = variable.distribute_strategy.replicas.mesh.first
    return enumerate(variable.values, first)


for _name, _update in (
    ("assign", _assigned),
    ("assign_add", _added),
    ("assign_sub", _subtracted),
):
    seam(values_util, f"on_read_{_name}_cross_replica")(
        functools.partial(_on_the_first, _update)
    )
