"""Losses that are computed outside of steps equal those of one device.

Keras divides every loss by the number of replicas, to sum it over them. In a
strategy's cross-replica context, such as a callback that computes the loss of a
batch, nothing is summed, so the loss is not divided.
"""

from typing import Any

import tensorflow as tf
from keras.src.losses import loss as loss_module

from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.seams import Original, seam


@seam(loss_module, "scale_loss_for_distribution")
@seam(loss_module, "unscale_loss_for_distribution")
def _scale(original: Original, value: Any) -> Any:
    in_none = tf.distribute.in_cross_replica_context()
    is_whole = in_none and is_ours(tf.distribute.get_strategy())
    return value if is_whole else original(value)
