"""Splits a global batch into one share (shard) per replica.

Shares keep the order of the rows, their sizes differ by at most one row, the
first replicas get the larger ones, and a share may be empty.
`kerasmgpu.per_replica_batch_sizes` is the same arithmetic on integers.
"""

from typing import Any

import tensorflow as tf

from kerasmgpu.engine.feeds import num_rows
from kerasmgpu.replica_arithmetic import first_row


def has_rows(value: Any) -> bool:
    """Whether a leaf of a batch is split by rows (scalars and `None` are not)."""
    if isinstance(value, (tf.SparseTensor, tf.RaggedTensor)):
        return True
    return tf.is_tensor(value) and value.shape.rank != 0


def share_bounds(
    rows: tf.Tensor, index: Any, num_replicas: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first row and the end row of the share of replica `index`.

    Args:
        rows: Scalar integer tensor, rows of the global batch.
        index: Integer or scalar integer tensor, index of the replica.
    """
    ends = tf.cast(index, rows.dtype) + [0, 1]
    return tf.unstack(first_row(ends, rows, num_replicas, tf.minimum))


def share(batch: Any, index: Any, num_replicas: int) -> Any:
    """Returns a replica's share of a batch; leaves without rows are unchanged."""

    def rows_of(value: Any) -> Any:
        if not has_rows(value):
            return value
        start, end = share_bounds(num_rows(value), index, num_replicas)
        if isinstance(value, tf.SparseTensor):
            return sparse_rows(value, start, end)
        return value[start:end]

    return tf.nest.map_structure(rows_of, batch)


def sparse_rows(
    value: tf.SparseTensor, start: Any, end: Any
) -> tf.SparseTensor:
    """Returns rows `start` to `end` of a sparse tensor; keeps static sizes."""
    shape = value.dense_shape
    first = tf.concat([[tf.cast(start, tf.int64)], tf.zeros_like(shape[1:])], 0)
    size = tf.concat([[tf.cast(end - start, tf.int64)], shape[1:]], 0)
    rows = tf.sparse.slice(value, first, size)
    # Slicing loses the static sizes, which layers need to be built.
    sizes = [
        rows.dense_shape[axis] if size is None else tf.constant(size, tf.int64)
        for axis, size in enumerate([None, *value.shape[1:]])
    ]
    return tf.SparseTensor(rows.indices, rows.values, tf.stack(sizes))


def split_dataset(
    dataset: tf.data.Dataset, num_replicas: int, first: int, num_local: int
) -> tf.data.Dataset:
    """Turns a data set of global batches into one of shares, in replica order.

    Args:
        first: Index of this worker's first replica.
        num_local: Number of replicas of this worker.

    Returns:
        A `tf.data.Dataset` with `num_local` elements per batch.
    """
    if num_replicas == 1:
        return dataset
    structure = dataset.element_spec

    def shares(*batch: Any) -> tf.data.Dataset:
        # flat_map unpacks tuples, also named ones, into arguments.
        batch = tf.nest.pack_sequence_as(structure, tf.nest.flatten(batch))
        return tf.data.Dataset.range(first, first + num_local).map(
            lambda index: share(batch, index, num_replicas)
        )

    return dataset.flat_map(shares)
