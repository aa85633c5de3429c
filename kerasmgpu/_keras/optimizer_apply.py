"""`Optimizer.apply` outside of steps updates as on one device.

In a strategy's cross-replica context TensorFlow has no replica to which the
gradients could belong, and fails. Here they count as gradients of the global
batch: they are applied once, and every replica's copies get the result. This
also holds after the program has left the scope in which the optimizer was made.
"""

from typing import Any

import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from kerasmgpu._keras import build, norms
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.seams import Original, seam


@seam(LossScaleOptimizer, "apply")
@seam(BaseOptimizer, "apply")
def _apply(
    original: Original,
    self: Any,
    grads: Any,
    trainable_variables: Any = None,
) -> Any:
    with build.scope_of(self):
        strategy = tf.distribute.get_strategy()
        if tf.distribute.in_cross_replica_context() and is_ours(strategy):
            return strategy.run_on_one_device(
                original, self, grads, trainable_variables
            )
        return norms.apply(original, self, grads, trainable_variables)
