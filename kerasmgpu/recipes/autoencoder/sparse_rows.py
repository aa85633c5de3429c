"""Sparse rows of ratings, from compressed arrays to batches on the device."""

import dataclasses
import functools

import numpy as np

from kerasmgpu.errors import InputError


@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows:
    """A sparse matrix by rows (compressed sparse rows, CSR).

    Row `r` holds `values[row_splits[r]:row_splits[r + 1]]` at the columns
    `columns[row_splits[r]:row_splits[r + 1]]`, which increase within a row.
    12 bytes per rating at most, however wide the matrix is.

    Args:
        row_splits: int64 array `[rows + 1]`.
        columns: int32 array `[ratings]`.
        values: float32 array `[ratings]`.
        num_columns: Width of the matrix.

    Example:

    ```python
    rows = SparseRows.from_ratings(ratings, rows="item")
    print(rows.num_rows, rows.num_columns)
    ```
    """

    row_splits: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    num_columns: int

    @property
    def num_rows(self):
        """Number of rows, the empty ones included."""
        return len(self.row_splits) - 1

    @functools.cached_property
    def tensors(self):
        """`row_splits`, `columns`, `values` as eager tensors on the host.

        They are copied once, however many datasets use these rows, and stay on
        the host also where a GPU is the default device.
        """
        import tensorflow as tf

        with tf.device("CPU:0"):
            return (
                tf.constant(self.row_splits),
                tf.constant(self.columns),
                tf.constant(self.values),
            )

    @classmethod
    def from_ratings(cls, ratings, rows="user"):
        """Compresses ratings into one row per user, or one per item.

        Sorts once, with 16 bytes per rating of transient memory, and not at
        all where the ratings are already in the order of the rows (most
        MovieLens files are ordered by user and item).

        Args:
            ratings: `ratings.Ratings`.
            rows: `"user"` (a row per user, a column per item) or `"item"`
                (the other way round). Defaults to `"user"`.

        Returns:
            `SparseRows` with a row for every user (item), also for those that
            have no rating in `ratings`.

        Raises:
            InputError: `rows` is neither.
        """
        if rows == "user":
            row, column = ratings.users, ratings.items
            num_rows, num_columns = ratings.num_users, ratings.num_items
        elif rows == "item":
            row, column = ratings.items, ratings.users
            num_rows, num_columns = ratings.num_items, ratings.num_users
        else:
            raise InputError(
                f"Rows must be 'user' or 'item'. Received: rows={rows!r}"
            )
        row_splits = np.zeros(num_rows + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=num_rows), out=row_splits[1:])
        # One 64-bit key per rating sorts several times as fast as a stable
        # sort by column and then by row.
        keys = row.astype(np.int64)
        keys *= num_columns
        keys += column
        if np.all(keys[1:] > keys[:-1]):
            values = ratings.values
        else:
            order = np.argsort(keys)
            column, values = column[order], ratings.values[order]
        return cls(row_splits, column, values, num_columns)


def row_taker(rows):
    """Returns a graph function: row numbers `[batch]` to a `SparseTensor`."""
    import tensorflow as tf

    # Made here, outside the dataset's function, which captures them.
    row_splits, columns, values = rows.tensors

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
