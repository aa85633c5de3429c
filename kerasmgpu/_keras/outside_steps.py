"""Computes losses and updates outside of steps (callbacks) as on one device."""

from typing import Any

import tensorflow as tf
from keras.src.losses import loss as loss_module
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from kerasmgpu._keras import build, norms
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.seams import Original, seam


@seam(LossScaleOptimizer, "apply")
@seam(BaseOptimizer, "apply")
def _apply(
    original: Original, self: Any, grads: Any, trainable_variables: Any = None
) -> Any:
    """Applies gradients once, as those of the global batch.

    In a strategy's cross-replica context TensorFlow has no replica to which
    they could belong, and fails. Here every replica's copies get the result,
    also after the program has left the scope in which the optimizer was made.
    """
    with build.scope_of(self):
        strategy = tf.distribute.get_strategy()
        if tf.distribute.in_cross_replica_context() and is_ours(strategy):
            return strategy.run_on_one_device(
                original, self, grads, trainable_variables
            )
        return norms.apply(original, self, grads, trainable_variables)


@seam(loss_module, "scale_loss_for_distribution")
@seam(loss_module, "unscale_loss_for_distribution")
def _scale(original: Original, value: Any) -> Any:
    """Keeps a loss whole in cross-replica context, where nothing is summed.

    Keras divides every loss by the number of replicas, to sum it over them.
    """
    in_none = tf.distribute.in_cross_replica_context()
    is_whole = in_none and is_ours(tf.distribute.get_strategy())
    return value if is_whole else original(value)
