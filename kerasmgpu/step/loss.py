"""A loss has the value of the global batch on every replica.

Keras reduces a loss over the rows that a replica happens to have and then
divides by the number of replicas: a mean of means, which is the mean only when
all shares are equal. Here numerators and denominators are summed over the
replicas first, so that

    loss = sum of all numerators / sum of all denominators,

and the gradient of that value on one replica is the part that its own rows
contribute, scaled as `collectives` says. The optimizer's step puts the parts
together to the gradient that one device computes for the whole batch.

A loss that is no sum over rows (Dice, a user's own function of the batch) is
computed on the gathered outputs of all replicas instead: exact by
construction, at the price of moving `y_true` and `y_pred` once per step.
"""

import tensorflow as tf
from absl import logging

from kerasmgpu.step import collectives
from kerasmgpu.step.row_degree import grows_with_rows

_announced = set()


def reduce(values, sample_weight, reduction, replica):
    """Sums this replica's loss values and divides by the global denominator.

    The denominators are those of `keras.losses.Loss`: the number of values,
    or the sum of the sample weights for `"mean_with_sample_weight"`.

    Args:
        values: Weighted loss values of this replica's rows, `[rows, …]`.
        sample_weight: Weights that `values` were multiplied with, or `None`.
        reduction: Keras's name of the reduction; not `None` or `"none"`.
        replica: The current `Replica`.

    Returns:
        Scalar with the value of the global batch's loss; its gradient is this
        replica's part.
    """
    replica.has_keras_loss = True
    numerator = tf.reduce_sum(values)
    if reduction == "sum":
        (total,) = collectives.sum_over_replicas([numerator])
        own = numerator * replica.rows_ratio(numerator.dtype)
        return collectives.with_value(own, total)
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        denominator = tf.cast(tf.reduce_sum(sample_weight), values.dtype)
    else:
        denominator = tf.cast(tf.size(values), values.dtype)
    total, count = collectives.sum_over_replicas([numerator, denominator])
    own = tf.math.divide_no_nan(numerator, count)
    return collectives.with_value(
        own * replica.rows_ratio(own.dtype),
        tf.math.divide_no_nan(total, count),
    )


def mask_scale(mask, epsilon):
    """Ratio of all positions to valid ones of the global batch.

    Keras weighs valid positions by `total / valid` before it takes the mean
    over all positions; both counts are of the global batch here.

    Args:
        mask: This replica's mask as zeros and ones.
        epsilon: What Keras adds to the number of valid positions.
    """
    counts = [tf.cast(tf.size(mask), mask.dtype), tf.reduce_sum(mask)]
    total, valid = collectives.sum_over_replicas(counts)
    return tf.math.divide_no_nan(total, valid + epsilon)


def additional(loss, depends_on_rows, replica):
    """An `add_loss` or regulariser term, exact for the global batch.

    Args:
        loss: Scalar as the layer computed it on this replica's rows.
        depends_on_rows: `True` for `add_loss` and activity regularisers, which
            are means or sums over the rows of the batch (see `row_degree`);
            `False` for regularisers of weights, which are the same on every
            replica.
        replica: The current `Replica`.

    Returns:
        Scalar with the value of the global batch; its gradient is this
        replica's part.
    """
    if not depends_on_rows:
        return loss
    # An empty share may have produced 0/0, which a factor 0 would keep.
    own = tf.where(replica.rows > 0, loss, tf.zeros_like(loss))
    ratio = replica.rows_ratio(loss.dtype)
    part = own
    if grows_with_rows(loss):
        own = own * ratio
    else:
        part = tf.math.divide_no_nan(own, ratio)
    (total,) = collectives.sum_over_replicas([part])
    return collectives.with_value(own, total)


def gather(structure, replica):
    """Gathers every leaf with rows of a nest; `None` leaves stay."""

    def gather_leaf(value):
        return (
            value if value is None else collectives.gather_rows(value, replica)
        )

    return tf.nest.map_structure(gather_leaf, structure)


def announce_gather(kind, name):
    """Says once per loss or metric that it sees the gathered global batch."""
    if (kind, name) in _announced:
        return
    _announced.add((kind, name))
    logging.info(
        "kerasmgpu: %s %r is computed on the gathered outputs of all replicas, "
        "which is exact for any function of the batch. If the value of each "
        "row depends on that row only, set its attribute `row_wise = True` to "
        "save the gather.",
        kind,
        name,
    )
