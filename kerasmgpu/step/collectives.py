"""Sums and gathers over the replicas, and their gradients.

Every function must be called by all replicas, in the same order.

One convention holds for all gradients on a replica: they are those of a mean
over the replica's own rows. They are weighted by the share of rows and then
summed, so a mean over rows that a user writes by hand, and a penalty on the
weights, are right as they stand; what is computed here for the global batch
scales its gradient by `replica.rows_ratio` to fit in. The weight goes into
`optimizer.scale_loss`, which Keras calls, so that half-precision gradients have
the size that they have on one device; where a step doesn't call it, it goes
into `optimizer.apply`.
"""

import tensorflow as tf


def sum_over_replicas(values):
    """Sums each tensor of a list over the replicas, in one call.

    No gradient flows through the result.
    """
    context = tf.distribute.get_replica_context()
    values = [tf.stop_gradient(value) for value in values]
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def sum_with_gradient(value, replica):
    """Sums a tensor over the replicas; its gradient is summed likewise."""

    @tf.custom_gradient
    def total(own):
        (summed,) = sum_over_replicas([own])

        def gradient(upstream):
            # What an empty share computes by hand may be 0/0.
            part = tf.where(replica.rows > 0, upstream, tf.zeros_like(upstream))
            if replica.weighted_optimizers:
                return sum_over_replicas([part])[0]
            ratio = replica.rows_ratio(upstream.dtype)
            part = tf.math.divide_no_nan(part, ratio)
            return sum_over_replicas([part])[0] * ratio

        return summed, gradient

    return total(value)


@tf.custom_gradient
def with_value(own, value):
    """A tensor that has the value of `value` and the gradient of `own`.

    This is how a loss can be the global batch's on every replica while its
    gradient stays the replica's own part.
    """
    return tf.identity(value), lambda upstream: (upstream, None)


def gather_rows(value, replica):
    """Concatenates the replicas' rows, in order: `[rows, …]` to `[global, …]`.

    The gradient is the upstream gradient of this replica's own rows, times
    `replica.rows_ratio`. That is exact where every replica computes the same
    function of the gathered rows.

    Args:
        value: A tensor, `tf.SparseTensor` or `tf.RaggedTensor` of this
            replica's rows.
        replica: The current `Replica`.
    """
    if isinstance(value, (tf.SparseTensor, tf.RaggedTensor)):
        return _concatenate(value)
    if value.shape.rank == 0:
        return value
    if not value.dtype.is_floating:
        return _concatenate(value)

    @tf.custom_gradient
    def gather(own):
        def own_rows(upstream):
            start = replica.first_row
            part = upstream[start : start + tf.shape(own)[0]]
            return part * replica.rows_ratio(part.dtype)

        gathered = _concatenate(own)
        gathered.set_shape([None, *own.shape[1:]])
        return gathered, own_rows

    return gather(value)


def _concatenate(value):
    """Joins the replicas' values along the first axis, in replica order."""

    def join(strategy, per_replica):
        shares = strategy.experimental_local_results(per_replica)
        if isinstance(shares[0], tf.SparseTensor):
            return tf.sparse.concat(0, shares)
        return tf.concat(shares, 0)

    context = tf.distribute.get_replica_context()
    return context.merge_call(join, args=(value,))
