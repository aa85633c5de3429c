"""Sparse rows of ratings, from compressed arrays to batches on the device."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows:
    """A sparse matrix by rows (compressed sparse rows, CSR).

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
    def num_rows(self):
        return len(self.row_splits) - 1

    @classmethod
    def from_ratings(cls, ratings, rows="user"):
        """Compresses ratings: a row for every user, or for every item.

        Sorts once, with 16 bytes per rating of transient memory, and not at
        all where the ratings are already in the order of the rows (most
        MovieLens files are ordered by user and item).
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
    train, held_out, global_batch_size, seed, first_step=0
):
    """Makes the two data sets of a run; both are `(ratings, targets)`.

    Training rebuilds the ratings that it is given. Validation is given the
    same ratings and predicts those that were held out.

    Returns:
        Two `tf.data.Dataset`s of pairs of `tf.SparseTensor`s, `[rows,
        columns]`: endless training batches (see `row_order.batches`), and one
        pass of validation batches.
    """
    import tensorflow as tf

    from kerasmgpu.recipes.datasets import row_order

    take_train, take_held_out = _row_taker(train), _row_taker(held_out)

    def rebuild(rows):
        ratings = take_train(rows)
        return ratings, ratings

    order = row_order.batches(
        train.num_rows, global_batch_size, seed, first_step
    )
    in_turn = tf.data.Dataset.range(train.num_rows).batch(global_batch_size)
    return row_order.mapped(order, rebuild), row_order.mapped(
        in_turn, lambda rows: (take_train(rows), take_held_out(rows))
    )


def _row_taker(rows):
    """Returns a graph function: row numbers `[batch]` to a `SparseTensor`."""
    import tensorflow as tf

    # Made here, outside the dataset's function, which captures them; on the
    # host also where a GPU is the default device.
    with tf.device("CPU:0"):
        row_splits = tf.constant(rows.row_splits)
        columns = tf.constant(rows.columns)
        values = tf.constant(rows.values)

    def take(row_numbers):
        positions = tf.ragged.range(
            tf.gather(row_splits, row_numbers),
            tf.gather(row_splits, row_numbers + 1),
        )
        # Of the kernels that number the rows of ragged values, this is the one
        # that is linear: `value_rowids` goes through a dense [batch, longest].
        batch_rows = positions.to_sparse().indices[:, 0]
        positions = positions.flat_values
        batch_columns = tf.cast(tf.gather(columns, positions), tf.int64)
        return tf.SparseTensor(
            indices=tf.stack([batch_rows, batch_columns], axis=1),
            values=tf.gather(values, positions),
            dense_shape=tf.stack(
                [tf.size(row_numbers, tf.int64), rows.num_columns]
            ),
        )

    return take
