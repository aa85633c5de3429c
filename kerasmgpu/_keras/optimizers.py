"""Optimizers: gradients meet once, then each replica's copies are updated alike.

Keras's code for a single device runs on each replica's copies. `_backend_…` and
the like are TensorFlow versions that would enter `tf.distribute` again.
"""

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer

from kerasmgpu._keras.seams import seam
from kerasmgpu.step import gradients
from kerasmgpu.step.replica import current, is_updating


@seam(BaseOptimizer, "apply")
def _apply(original, self, grads, trainable_variables=None):
    return _apply_exactly(original, self, grads, trainable_variables)


@seam(keras.optimizers.LossScaleOptimizer, "apply")
def _apply_scaled(original, self, grads, trainable_variables=None):
    return _apply_exactly(original, self, grads, trainable_variables)


def _apply_exactly(original, self, grads, trainable_variables):
    replica = current()
    if replica is None or is_updating():
        return original(self, grads, trainable_variables)
    return gradients.reduce_and_apply(
        original, self, grads, trainable_variables, replica
    )


@seam(BaseOptimizer, "scale_loss")
def _scale_loss(original, self, loss):
    return original(self, _weighted(self, loss))


@seam(keras.optimizers.LossScaleOptimizer, "scale_loss")
def _scale_loss_dynamically(original, self, loss):
    return original(self, _weighted(self, loss))


def _weighted(optimizer, loss):
    replica = current()
    if replica is None:
        return loss
    replica.weighted_optimizers.add(id(optimizer))
    return loss * gradients.share_of_rows(replica, loss.dtype)


@seam(keras.optimizers.LossScaleOptimizer, "_tf_apply")
def _tf_apply(original, self, grads, trainable_variables=None):
    if is_updating():
        return self._common_apply(grads, trainable_variables)
    return original(self, grads, trainable_variables)


@seam(TFOptimizer, "_backend_update_step")
def _update_step(original, self, *args):
    if not is_updating():
        return original(self, *args)
    # These wait for the gradients; the rest of `apply` must be told to wait.
    with tf.control_dependencies(None):
        return BaseOptimizer._backend_update_step(self, *args)


def _seam_of_update(name):
    @seam(TFOptimizer, name)
    def update(original, self, *args):
        if is_updating():
            return getattr(BaseOptimizer, name)(self, *args)
        return original(self, *args)


for _name in (
    "_apply_weight_decay",
    "_overwrite_model_variables_with_average_value",
    "_backend_increment_gradient_accumulators",
):
    _seam_of_update(_name)
