"""Makes gradient tapes work in a strategy's cross-replica context.

Custom loops in eager code need it, and a `train_step` called directly. There a
variable is read from one of its copies, and the tape records that copy; asked
for the gradient of the variable, TensorFlow finds no replica and fails. The
patches pass the copy to the tape instead. A sharded variable's handle holds no
value: its shape, with which the gradient of a loop begins, is replaced by the
static shape. Checked on TensorFlow 2.18 and 2.21.
"""

from typing import Any

import tensorflow as tf

from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.private_names import (
    DistributedVariable,
    backprop,
    gen_resource_variable_ops,
    resource_variable_ops,
)
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.runtime.one_device import container, is_sum
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable


@seam(backprop, "_handle_or_self")
def _handle_or_self(original: Original, x: Any) -> Any:
    return original(_copy_that_is_read(x))


@seam(tf.GradientTape, "watch")
def _watch(original: Original, self: Any, tensor: Any) -> None:
    original(self, tf.nest.map_structure(_copy_that_is_read, tensor))


@seam(tf.GradientTape, "watched_variables")
def _watched_variables(original: Original, self: Any) -> tuple[Any, ...]:
    return tuple(
        container(variable.handle) or variable for variable in original(self)
    )


@seam(tf.autodiff.ForwardAccumulator, "__init__")
def _accumulator(
    original: Original, self: Any, primals: Any, tangents: Any
) -> None:
    primals = tf.nest.map_structure(_copy_that_is_read, primals)
    original(self, primals, tangents)


@seam(gen_resource_variable_ops, "variable_shape")
def _variable_shape(original: Original, input: Any, *args: Any) -> Any:
    """Returns a variable's shape, for sums of its gradients in a loop."""
    if args or tf.executing_eagerly() or not ShardedVariable.exists:
        return original(input, *args)
    if getattr(tf.distribute.get_strategy().extended, "is_one_device", False):
        return original(input)
    shape = tf.TensorShape(None)
    data = resource_variable_ops.get_eager_safe_handle_data(input)
    if data is not None and len(data.shape_and_type) == 1:
        shape = tf.TensorShape(data.shape_and_type[0].shape)
    if not shape.is_fully_defined():
        return original(input)
    return tf.constant(shape.as_list(), tf.int32)


def _copy_that_is_read(x: Any) -> Any:
    """Returns the copy that a variable is read from; other objects unchanged."""
    # Keras's variables hold TensorFlow's.
    variable = getattr(x, "value", None)
    if not isinstance(variable, DistributedVariable):
        variable = x
    if (
        isinstance(variable, DistributedVariable)
        and tf.distribute.in_cross_replica_context()
        and is_ours(variable.distribute_strategy)
        and not is_sum(variable)
    ):
        return variable._get_on_device_or_primary()
    return x
