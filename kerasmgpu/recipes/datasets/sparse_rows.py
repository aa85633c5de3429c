"""Sparse rows of ratings, from compressed arrays to batches on the device."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasmgpu.recipes.datasets import row_order
from kerasmgpu.recipes.datasets.ratings import Ratings

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows:
    """A matrix as compressed sparse rows (CSR).

    Row `r` holds `values[row_splits[r]:row_splits[r + 1]]` at the columns
    `columns[row_splits[r]:row_splits[r + 1]]`, which increase within a row.
    `row_splits` is int64, `[rows + 1]`; `columns` int32 and `values` float32,
    `[ratings]`.
    """

    row_splits: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    num_columns: int

    @property
    def num_rows(self) -> int:
        return len(self.row_splits) - 1

    @classmethod
    def from_ratings(cls, ratings: Ratings, rows: str = "user") -> "SparseRows":
        """Compresses ratings: a row per `"user"`, or per `"item"`.

        Sorts, with 16 bytes of memory per rating, unless the ratings are in the
        order of the rows, as in most MovieLens files.
        """
        row, column = ratings.users, ratings.items
        num_rows, num_columns = ratings.num_users, ratings.num_items
        if rows == "item":
            row, column = column, row
            num_rows, num_columns = num_columns, num_rows
        row_splits = np.zeros(num_rows + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=num_rows), out=row_splits[1:])
        # One 64-bit key per rating sorts several times as fast as a stable
        # sort by column and then by row.
        keys = row.astype(np.int64) * num_columns + column
        values = ratings.values
        if not np.all(keys[1:] > keys[:-1]):
            order = np.argsort(keys)
            column, values = column[order], values[order]
        return cls(row_splits, column, values, num_columns)


def training_and_validation(
    train: SparseRows,
    held_out: SparseRows,
    global_batch_size: int,
    seed: int,
    first_step: int = 0,
) -> tuple["tf.data.Dataset", "tf.data.Dataset"]:
    """Makes the two data sets of a run, of pairs `(ratings, targets)`.

    Both are `tf.SparseTensor`s, `[rows, columns]`. Training targets are the
    ratings themselves; validation predicts the held-out ratings from the
    training ratings. Training is endless, validation one pass.
    """
    import tensorflow as tf

    take_train, take_held_out = _row_taker(train), _row_taker(held_out)

    def rebuild(rows: "tf.Tensor") -> Any:
        ratings = take_train(rows)
        return ratings, ratings

    num_rows = train.num_rows
    order = row_order.batches(num_rows, global_batch_size, seed, first_step)
    in_turn = tf.data.Dataset.range(num_rows).batch(global_batch_size)
    return row_order.mapped(order, rebuild), row_order.mapped(
        in_turn, lambda rows: (take_train(rows), take_held_out(rows))
    )


def _row_taker(rows: SparseRows) -> Callable[["tf.Tensor"], "tf.SparseTensor"]:
    """Returns a graph function: row numbers `[batch]` to a `SparseTensor`."""
    import tensorflow as tf

    # Captured by the dataset's function; on the host, also where a GPU is the
    # default device.
    with tf.device("CPU:0"):
        row_splits, columns, values = map(
            tf.constant, (rows.row_splits, rows.columns, rows.values)
        )

    def take(numbers: "tf.Tensor") -> "tf.SparseTensor":
        positions = tf.ragged.range(
            tf.gather(row_splits, numbers), tf.gather(row_splits, numbers + 1)
        )
        # Linear, unlike `value_rowids`, whose kernel makes a dense [batch,
        # longest].
        batch_rows = positions.to_sparse().indices[:, 0]
        positions = positions.flat_values
        batch_columns = tf.cast(tf.gather(columns, positions), tf.int64)
        return tf.SparseTensor(
            tf.stack([batch_rows, batch_columns], axis=1),
            tf.gather(values, positions),
            tf.stack([tf.size(numbers, tf.int64), rows.num_columns]),
        )

    return take
