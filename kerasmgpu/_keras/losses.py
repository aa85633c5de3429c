"""A loss that is computed outside of steps is that of one device.

Keras divides every loss by the number of replicas, which then sum it. Where a
strategy's scope is entered but no replica runs, as in a callback that asks a
loss about a batch, nothing is summed: there the loss stays whole.
"""

import tensorflow as tf
from keras.src.losses import loss as loss_module

from kerasmgpu._keras.scope import is_ours
from kerasmgpu._keras.seams import seam


@seam(loss_module, "scale_loss_for_distribution")
def _scale(original, value):
    return value if _is_whole() else original(value)


@seam(loss_module, "unscale_loss_for_distribution")
def _unscale(original, value):
    return value if _is_whole() else original(value)


def _is_whole():
    return tf.distribute.in_cross_replica_context() and is_ours(
        tf.distribute.get_strategy()
    )
