"""Optimizer updates with fewer operations, on every replica.

Keras writes an update as some thirty small operations per variable, and a
strategy repeats them for each replica: half of the host's work in a step of a
deep model. Adam's share that is the same for all variables is computed once
here, and plain SGD has kernels in TensorFlow. Whatever surrounds the update
(clipping, decay, averages, constraints) stays Keras's; so do other optimizers,
sparse gradients and subclasses with a step of their own.
"""

import keras
import tensorflow as tf

from kerasmgpu._keras.seams import seam
from kerasmgpu.step.replica import is_updating, kept_for_update


def _can_take(gradient):
    """Whether this is a dense gradient, in the update of a replica."""
    return (
        is_updating()
        and tf.is_tensor(gradient)
        and (not isinstance(gradient, tf.IndexedSlices))
    )


def _handle(variable):
    """The resource of the copy of a variable that is being updated."""
    return getattr(variable, "value", variable).handle


@seam(keras.optimizers.Adam, "update_step")
def _update_adam(original, self, gradient, variable, learning_rate):
    if self.amsgrad or not _can_take(gradient):
        return original(self, gradient, variable, learning_rate)
    # Keras's own formula (Kingma and Ba, arXiv:1412.6980, before section 2.1),
    # in its order. TensorFlow's kernel for it computes 1 - beta_2 in float32,
    # which is 1e-5 off.
    dtype = tf.as_dtype(variable.dtype)
    index = self._get_variable_index(variable)
    first, second = (
        _handle(self._momentums[index]),
        _handle(self._velocities[index]),
    )
    gradient = tf.cast(gradient, dtype)
    alpha = kept_for_update(
        (id(self), dtype.name),
        lambda: _bias_corrected_rate(self, learning_rate, dtype),
    )
    m = tf.raw_ops.ReadVariableOp(resource=first, dtype=dtype)
    m = m + (gradient - m) * (1 - self.beta_1)
    v = tf.raw_ops.ReadVariableOp(resource=second, dtype=dtype)
    v = v + (tf.square(gradient) - v) * (1 - self.beta_2)
    tf.raw_ops.AssignVariableOp(resource=first, value=m)
    tf.raw_ops.AssignVariableOp(resource=second, value=v)
    tf.raw_ops.AssignSubVariableOp(
        resource=_handle(variable),
        value=m * alpha / (tf.sqrt(v) + self.epsilon),
    )


def _bias_corrected_rate(adam, learning_rate, dtype):
    step = tf.cast(adam.iterations + 1, dtype)
    power_1, power_2 = (
        tf.pow(_as_keras_casts(beta, dtype), step)
        for beta in (adam.beta_1, adam.beta_2)
    )
    rate = tf.cast(learning_rate, dtype)
    return rate * tf.sqrt(1 - power_2) / (1 - power_1)


@seam(keras.optimizers.SGD, "update_step")
def _update_sgd(original, self, gradient, variable, learning_rate):
    if not _can_take(gradient):
        return original(self, gradient, variable, learning_rate)
    dtype = tf.as_dtype(variable.dtype)
    learning_rate = tf.cast(learning_rate, dtype)
    gradient = tf.cast(gradient, dtype)
    if self.momentum == 0:
        tf.raw_ops.ResourceApplyGradientDescent(
            var=_handle(variable), alpha=learning_rate, delta=gradient
        )
        return
    index = self._get_variable_index(variable)
    tf.raw_ops.ResourceApplyKerasMomentum(
        var=_handle(variable),
        accum=_handle(self.momentums[index]),
        lr=learning_rate,
        grad=gradient,
        momentum=_as_keras_casts(self.momentum, dtype),
        use_nesterov=self.nesterov,
    )


def _as_keras_casts(number, dtype):
    """A Python number as a tensor; Keras's cast goes through its default type."""
    return keras.ops.cast(number, dtype.name)
