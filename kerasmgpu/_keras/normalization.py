"""Gives batch normalisation per-replica moments, if the strategy says so."""

from typing import Any

import tensorflow as tf
from keras.src.layers.normalization.batch_normalization import (
    BatchNormalization,
)

from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.rules.per_replica import sum_of_rows


@seam(BatchNormalization, "_moments")
def _moments(
    original: Original, self: Any, inputs: tf.Tensor, mask: tf.Tensor | None
) -> Any:
    strategy = tf.distribute.get_strategy()
    is_global = (
        not is_ours(strategy) or strategy.settings.batch_norm == "global"
    )
    if is_global or self.synchronized:
        return original(self, inputs, mask)
    axes = self._reduction_axes
    x = tf.cast(
        inputs, tf.float64 if inputs.dtype == tf.float64 else tf.float32
    )
    if mask is None:
        weights = tf.raw_ops.OnesLike(x=x)
    else:
        weights = tf.broadcast_to(mask[..., None], tf.shape(x))
        weights = tf.cast(weights, x.dtype)
    total = sum_of_rows(weights, axes)
    mean = tf.math.divide_no_nan(sum_of_rows(x * weights, axes), total)
    squares = weights * (x - mean) ** 2
    variance = tf.math.divide_no_nan(sum_of_rows(squares, axes), total)
    return [
        tf.cast(tf.squeeze(moment, axes), inputs.dtype)
        for moment in (mean, variance)
    ]
