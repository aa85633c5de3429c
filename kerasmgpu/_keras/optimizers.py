"""`Optimizer.apply` outside of steps updates as on one device.

In a strategy's cross-replica context TensorFlow has no replica to which the
gradients could belong, and fails. Here they are the global batch's: they are
applied once, and every replica's copies get the result. This also holds after
the program has left the scope in which the optimizer was made.
"""

import tensorflow as tf
from keras.src import backend
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from kerasmgpu._keras import build
from kerasmgpu._keras.scope import is_ours
from kerasmgpu._keras.seams import seam
from kerasmgpu.partitioner.tracing import done_once


@seam(LossScaleOptimizer, "apply")
@seam(BaseOptimizer, "apply")
def _apply(original, self, grads, trainable_variables=None):
    with build.scope_of(self):
        if not self.built and trainable_variables is not None and len(grads):
            trainable_variables = list(trainable_variables)
            # As in Keras, but does not make the step be traced a second time.
            with backend.name_scope(self.name, caller=self), done_once():
                self.build(trainable_variables)
            self.built = True
        strategy = tf.distribute.get_strategy()
        if tf.distribute.in_cross_replica_context() and is_ours(strategy):
            return strategy.run_on_one_device(
                original, self, grads, trainable_variables
            )
        return original(self, grads, trainable_variables)
