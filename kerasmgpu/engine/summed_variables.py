"""Assigns to variables that are sums over the replicas, such as metrics.

The assigned value goes to the first replica, and zeros to the others.
TensorFlow assigns or restores an equal share on every replica, rounded: integer
counts lose the remainder, and `IoU` outside of a step counts nothing at all. It
refuses `assign_add`, even where Keras only infers shapes. Checked on TensorFlow
2.18 and 2.21.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.private_names import DistributedVariable, values_util
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.runtime.one_device import is_sum


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
    """Returns this process's copies with their global replica indices."""
    first = variable.distribute_strategy.replicas.first
    return enumerate(variable.values, first)


for _name, _update in (
    ("assign", _assigned),
    ("assign_add", _added),
    ("assign_sub", _subtracted),
):
    seam(values_util, f"on_read_{_name}_cross_replica")(
        functools.partial(_on_the_first, _update)
    )
