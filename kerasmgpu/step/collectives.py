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

from kerasmgpu.errors import InputError
from kerasmgpu.step.replica import current


def sum_over_replicas(values):
    """Sums each tensor of a list over the replicas, in one call.

    No gradient flows through the result.
    """
    context = tf.distribute.get_replica_context()
    values = [tf.stop_gradient(value) for value in values]
    replica = current()
    if replica is not None:
        replica.reduced_bytes += sum(
            (value.shape.num_elements() or 0) * value.dtype.size
            for value in values
        )
    is_timed = replica is not None and replica.own_time is not None
    if is_timed:
        replica.own_time.pause(replica.started, values)
    sums = by_type(
        values,
        [value.dtype for value in values],
        lambda alike: context.all_reduce(tf.distribute.ReduceOp.SUM, alike),
    )
    if is_timed:
        replica.started = replica.own_time.start(sums[0])
    return sums


def by_type(values, types, reduce):
    """Reduces values in one pack for each type, as packs are concatenated.

    Args:
        values: List of tensors or per-replica values.
        types: List of their `tf.DType`s.
        reduce: Function from a list of values of one type to the results.

    Returns:
        List of the results, in the order of `values`.
    """
    results = [None] * len(values)
    for kind in dict.fromkeys(types):
        places = [i for i, other in enumerate(types) if other == kind]
        for i, result in zip(places, reduce([values[i] for i in places])):
            results[i] = result
    return results


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
        return concatenate(value, replica)
    if value.shape.rank == 0:
        return value
    if not value.dtype.is_floating:
        return concatenate(value, replica)

    @tf.custom_gradient
    def gather(own):
        def own_rows(upstream):
            start = replica.first_row
            part = upstream[start : start + tf.shape(own)[0]]
            return part * replica.rows_ratio(part.dtype)

        gathered = concatenate(own, replica)
        gathered.set_shape([None, *own.shape[1:]])
        return gathered, own_rows

    return gather(value)


def concatenate(value, replica):
    """Joins the replicas' values along the first axis, in replica order."""
    if replica.has_other_workers:
        return _concatenate_over_workers(value, replica)

    def join(strategy, per_replica):
        return concatenate_local(
            strategy.experimental_local_results(per_replica)
        )

    context = tf.distribute.get_replica_context()
    return context.merge_call(join, args=(value,))


def concatenate_local(shares):
    """Joins the values of one process's replicas along the first axis."""
    if isinstance(shares[0], tf.SparseTensor):
        return tf.sparse.concat(0, shares)
    return tf.concat(shares, 0)


def counts(rows, index, num_replicas):
    """Every replica's number, put together: int32 `[num_replicas]`.

    Args:
        rows: Scalar int32 tensor of this replica.
        index: Number of this replica.
        num_replicas: Number of replicas.
    """
    # NCCL has no 32-bit integers on a GPU; doubles count exactly to 2 ** 53.
    own = tf.one_hot(index, num_replicas, dtype=tf.float64)
    (table,) = sum_over_replicas([own * tf.cast(rows, tf.float64)])
    return tf.cast(table, tf.int32)


def _concatenate_over_workers(value, replica):
    """`concatenate` by a sum: each replica fills its own rows into zeros."""
    if isinstance(value, tf.RaggedTensor):
        return tf.RaggedTensor.from_row_lengths(
            _concatenate_over_workers(value.values, replica),
            _concatenate_over_workers(value.row_lengths(), replica),
        )
    if isinstance(value, tf.SparseTensor):
        return _concatenate_sparse(value, replica)
    return _fill_in(
        value, counts(tf.shape(value)[0], *_place(replica)), replica
    )


def _concatenate_sparse(value, replica):
    rows = counts(tf.cast(value.dense_shape[0], tf.int32), *_place(replica))
    start = tf.cast(tf.reduce_sum(rows[: replica.index]), tf.int64)
    offset = tf.concat([[start], tf.zeros_like(value.dense_shape[1:])], 0)
    sizes = counts(tf.shape(value.values)[0], *_place(replica))
    shape = [
        tf.cast(tf.reduce_sum(rows), tf.int64)[None],
        value.dense_shape[1:],
    ]
    return tf.SparseTensor(
        _fill_in(value.indices + offset, sizes, replica),
        _fill_in(value.values, sizes, replica),
        tf.concat(shape, 0),
    )


def _fill_in(value, sizes, replica):
    """This replica's part of a concatenation, and the sum of all parts."""
    dtype = _transport(value.dtype)
    before = tf.reduce_sum(sizes[: replica.index])
    after = tf.reduce_sum(sizes[replica.index + 1 :])
    padding = [[before, after]] + [[0, 0]] * (value.shape.rank - 1)
    (total,) = sum_over_replicas([tf.pad(tf.cast(value, dtype), padding)])
    return tf.cast(total, value.dtype)


def _place(replica):
    return replica.index, replica.num_replicas


def _transport(dtype):
    """A type in which TensorFlow's collectives can send values of `dtype`."""
    if dtype.is_floating or dtype == tf.int64:
        return dtype
    if dtype.is_bool or dtype.is_integer and dtype != tf.uint64:
        return tf.int64
    raise InputError(
        "Rows of a whole-batch loss, metric or prediction travel between the "
        f"workers as numbers. Received: {dtype.name}; convert it to numbers "
        "(`keras.layers.StringLookup`) or run on one worker."
    )
