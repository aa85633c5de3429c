"""An optimizer applied outside of steps does what it does on one device.

In a strategy's scope, where no replica runs, TensorFlow knows no replica whose
gradients these could be and fails. They are the whole ones there: they are
applied once, and every replica's copies get the result. An optimizer that was
made in a scope does so behind it, too.
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
            # As Keras does it, but no step is traced a second time for it.
            with backend.name_scope(self.name, caller=self), done_once():
                self.build(trainable_variables)
            self.built = True
        strategy = tf.distribute.get_strategy()
        if tf.distribute.in_cross_replica_context() and is_ours(strategy):
            return strategy.run_on_one_device(
                original, self, grads, trainable_variables
            )
        return original(self, grads, trainable_variables)
