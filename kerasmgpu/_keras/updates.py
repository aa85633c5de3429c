"""Optimizer updates with fewer operations, on every replica.

Keras writes an update as some thirty small operations per variable, and a
strategy repeats them for each replica: two thirds of the operations of a deep
model's step, and so of the time to the first one. TensorFlow has kernels for
Adam and SGD, which do most of it in one operation. Whatever surrounds the
update (clipping, decay, averages, constraints) stays Keras's; so do other
optimizers, sparse gradients and subclasses with a step of their own.
"""

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu._keras.seams import seam
from kerasmgpu.step.replica import (
    is_updating,
    kept_for_update,
    square_of,
)


def _can_take(gradient):
    """Whether this is a dense gradient, in the update of a replica."""
    return (
        is_updating()
        and tf.is_tensor(gradient)
        and not isinstance(gradient, tf.IndexedSlices)
    )


def _handle(variable):
    """The resource of the copy of a variable that is being updated."""
    return getattr(variable, "value", variable).handle


@seam(keras.optimizers.Adam, "update_step")
def _update_adam(original, self, gradient, variable, learning_rate):
    dtype = tf.as_dtype(variable.dtype)
    can_take = _can_take(gradient) and _rounds_alike(1 - self.beta_1, dtype)
    if self.amsgrad or not can_take:
        return original(self, gradient, variable, learning_rate)
    index = self._get_variable_index(variable)
    velocity = _handle(self._velocities[index])
    gradient = tf.cast(gradient, dtype)
    numbers = kept_for_update(
        (id(self), dtype.name),
        lambda: _numbers_of_adam(self, learning_rate, dtype),
    )
    # TensorFlow's kernel for Adam weighs g² by 1 minus a rounded beta_2, in
    # float32 1.3e-5 off, which grows in training. So its beta_2 is 1, which
    # leaves the second moment alone, and this is Keras's v + (g² - v) weight.
    value = tf.raw_ops.ReadVariableOp(resource=velocity, dtype=dtype)
    tf.raw_ops.ResourceApplyGradientDescent(
        var=velocity,
        alpha=numbers["weight_2"],
        delta=tf.raw_ops.Sub(x=value, y=square_of(gradient)),
    )
    tf.raw_ops.ResourceApplyAdam(
        var=_handle(variable),
        m=_handle(self._momentums[index]),
        v=velocity,
        beta1_power=numbers["zero"],
        beta2_power=numbers["zero"],
        lr=numbers["rate"],
        beta1=numbers["beta_1"],
        beta2=numbers["one"],
        epsilon=numbers["epsilon"],
        grad=gradient,
    )


def _rounds_alike(weight, dtype):
    """Whether 1 - (1 - weight) in this type is `weight`, but for 8 units."""
    if dtype not in (tf.float32, tf.float64):
        return False
    number = dtype.as_numpy_dtype
    error = abs(number(1) - (number(1) - number(weight)) - number(weight))
    return error <= 8 * np.finfo(number).eps * number(weight)


def _numbers_of_adam(adam, learning_rate, dtype):
    """What the updates of all variables have in common, as tensors.

    The rate is corrected for the bias of both moments with Keras's powers
    (Kingma and Ba, arXiv:1412.6980, before section 2.1).
    """
    step = tf.cast(adam.iterations + 1, dtype)
    power_1, power_2 = (
        tf.pow(_as_keras_casts(beta, dtype), step)
        for beta in (adam.beta_1, adam.beta_2)
    )
    rate = tf.cast(learning_rate, dtype)
    constants = {
        "zero": 0,
        "one": 1,
        # The kernel computes 1 - beta_1 and gets Keras's weight again.
        "beta_1": 1 - dtype.as_numpy_dtype(1 - adam.beta_1),
        "weight_2": 1 - adam.beta_2,
        "epsilon": adam.epsilon,
    }
    return {
        "rate": rate * tf.sqrt(1 - power_2) / (1 - power_1),
        **{name: tf.constant(v, dtype) for name, v in constants.items()},
    }


@seam(keras.optimizers.SGD, "update_step")
def _update_sgd(original, self, gradient, variable, learning_rate):
    if not _can_take(gradient):
        return original(self, gradient, variable, learning_rate)
    dtype = tf.as_dtype(variable.dtype)
    rate, momentum = kept_for_update(
        (id(self), dtype.name),
        lambda: (
            tf.cast(learning_rate, dtype),
            _as_keras_casts(self.momentum, dtype),
        ),
    )
    gradient = tf.cast(gradient, dtype)
    if self.momentum == 0:
        tf.raw_ops.ResourceApplyGradientDescent(
            var=_handle(variable), alpha=rate, delta=gradient
        )
        return
    index = self._get_variable_index(variable)
    tf.raw_ops.ResourceApplyKerasMomentum(
        var=_handle(variable),
        accum=_handle(self.momentums[index]),
        lr=rate,
        grad=gradient,
        momentum=momentum,
        use_nesterov=self.nesterov,
    )


def _as_keras_casts(number, dtype):
    """A Python number as a tensor; Keras's cast goes through its default type."""
    return keras.ops.cast(number, dtype.name)
