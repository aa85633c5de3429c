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


def dataset(inputs, targets, global_batch_size, shuffle=False, seed=0):
    """Makes a dataset of batches of sparse rows, for `Model.fit`.

    An element is `(input, target)`, two `tf.SparseTensor`s of the static shape
    `[None, num_columns]` that hold the same rows of `inputs` and of `targets`.
    Pass the same rows twice to train an autoencoder, and the rows of training
    with those held out to evaluate one. Indices are in canonical order.

    A batch is cut out of the compressed arrays by TensorFlow operations: no
    Python runs per step, and no dense row exists on the host.

    Args:
        inputs: `SparseRows`.
        targets: `SparseRows` of the same number of rows and columns.
        global_batch_size: Rows per batch, over all replicas; the last batch of
            an epoch may be smaller.
        shuffle: Whether the rows are in a new random order in each epoch, or
            in their own. Defaults to `False`.
        seed: Seed of the orders. Defaults to `0`.

    Returns:
        `tf.data.Dataset` of `ceil(rows / global_batch_size)` batches.

    Raises:
        InputError: the batch holds no row.
        ValueError: `inputs` and `targets` differ in shape.

    Example:

    ```python
    train, held_out = ratings.split(held_out=0.1, seed=0)
    train = SparseRows.from_ratings(train, rows="item")
    held_out = SparseRows.from_ratings(held_out, rows="item")
    model.fit(
        dataset(train, train, global_batch_size=250, shuffle=True),
        validation_data=dataset(train, held_out, global_batch_size=250),
    )
    ```
    """
    import tensorflow as tf

    if global_batch_size < 1:
        raise InputError(
            "The global batch must hold at least 1 row. "
            f"Received: global_batch_size={global_batch_size}"
        )
    shapes = [(rows.num_rows, rows.num_columns) for rows in (inputs, targets)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            "inputs and targets must have the same number of rows and "
            f"columns. Received: {shapes[0]} and {shapes[1]}"
        )
    take_inputs = row_taker(inputs)
    # The rows of an autoencoder are cut out once, not twice.
    take_targets = None if targets is inputs else row_taker(targets)

    def take(row_numbers):
        taken = take_inputs(row_numbers)
        return taken, take_targets(row_numbers) if take_targets else taken

    row_numbers = tf.data.Dataset.range(inputs.num_rows)
    if shuffle:
        row_numbers = row_numbers.shuffle(
            inputs.num_rows, seed=seed, reshuffle_each_iteration=True
        )
    return (
        row_numbers.batch(global_batch_size)
        .map(take, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


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
