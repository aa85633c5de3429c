"""Batch normalisation with the moments of the global batch.

One collective per layer and step: every replica contributes its number of
rows, its mean and its sum of squared deviations, and all combine them alike
(Chan, Golub, LeVeque 1979, eq. 2.1, the parallel form of Welford's update),
which is stable where the textbook E[x²] − E[x]² cancels.

`"per_replica"` moments cost no collective in the forward and backward passes:
every replica normalises with the moments of its own rows, and the moving
statistics become the mean over the replicas once per step (`step/state.py`), so
that what is saved is what predicts.
"""

import keras
import tensorflow as tf

from kerasmgpu.step import collectives


def moments(inputs, mask, axes, replica):
    """Mean and variance of the global batch over `axes`.

    Args:
        inputs: This replica's rows, float32 or float64 `[rows, …]`.
        mask: Boolean `[rows, …]`, one dimension less than `inputs`, or `None`.
        axes: Axes to reduce, as Keras's layer computed them.
        replica: The current `Replica`.

    Returns:
        `(mean, variance)` of the global batch, each `[channels]`.
    """
    count, mean, squares = _own_moments(inputs, mask, axes)
    channels = tf.size(mean)
    own = tf.concat([tf.reshape(count, [1]), mean, squares], 0)
    # Every replica fills its own row; the sum puts the rows together.
    rows = tf.one_hot(replica.index, replica.num_replicas, dtype=own.dtype)
    table = collectives.sum_with_gradient(rows[:, None] * own[None, :], replica)
    counts = table[:, :1]
    means, squares = table[:, 1 : channels + 1], table[:, channels + 1 :]
    total = tf.reduce_sum(counts)
    global_mean = tf.math.divide_no_nan(tf.reduce_sum(counts * means, 0), total)
    deviations = squares + counts * tf.square(means - global_mean)
    deviations = tf.reduce_sum(deviations, 0)
    if mask is not None:
        # Keras adds an epsilon to the number of unmasked positions.
        padded = total + keras.config.epsilon()
        unpadded_mean, global_mean = global_mean, global_mean * total / padded
        deviations += total * tf.square(unpadded_mean - global_mean)
        total = padded
    variance = tf.math.divide_no_nan(deviations, total)
    static = inputs.shape[-1:] if mask is not None else mean.shape
    global_mean.set_shape(static)
    variance.set_shape(static)
    return global_mean, variance


def _own_moments(inputs, mask, axes):
    """This replica's count, mean and sum of squared deviations per channel."""
    if mask is None:
        weights = None
        count = tf.size(inputs) / tf.maximum(_num_channels(inputs, axes), 1)
        count = tf.cast(count, inputs.dtype)
        total = tf.reduce_sum(inputs, axes, keepdims=True)
    else:
        weights = tf.cast(mask[..., None], inputs.dtype)
        count = tf.reduce_sum(weights)
        total = tf.reduce_sum(inputs * weights, axes, keepdims=True)
    mean = tf.math.divide_no_nan(total, count)
    deviations = tf.square(inputs - mean)
    if weights is not None:
        deviations *= weights
    squares = tf.reduce_sum(deviations, axes)
    return count, tf.reshape(mean, [-1]), tf.reshape(squares, [-1])


def _num_channels(inputs, axes):
    kept = [axis for axis in range(inputs.shape.rank) if axis not in axes]
    return tf.reduce_prod(tf.gather(tf.shape(inputs), kept))
