import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.autoencoder import generated_ratings, sparse_rows
from kerasmgpu.recipes.autoencoder.ratings import Ratings
from kerasmgpu.recipes.autoencoder.sparse_rows import SparseRows


def make_ratings():
    """User 1 has rated nothing; the order is neither users' nor items'."""
    return Ratings(
        users=np.array([2, 0, 2, 0], np.int32),
        items=np.array([1, 2, 0, 0], np.int32),
        values=np.array([1, 2, 3, 4], np.float32),
        user_ids=np.arange(3),
        item_ids=np.arange(4),
        description="by hand",
    )


def matrix(rows):
    """The rows as a dense NumPy matrix."""
    dense = np.zeros((rows.num_rows, rows.num_columns), np.float32)
    for row in range(rows.num_rows):
        part = slice(rows.row_splits[row], rows.row_splits[row + 1])
        dense[row, rows.columns[part]] = rows.values[part]
    return dense


def dense_of(ratings):
    dense = np.zeros((ratings.num_users, ratings.num_items), np.float32)
    dense[ratings.users, ratings.items] = ratings.values
    return dense


def to_numpy(sparse):
    dense = np.zeros(sparse.dense_shape.numpy(), np.float32)
    dense[tuple(sparse.indices.numpy().T)] = sparse.values.numpy()
    return dense


def test_rows_by_user_worked_out_by_hand():
    rows = SparseRows.from_ratings(make_ratings(), rows="user")
    np.testing.assert_array_equal(rows.row_splits, [0, 2, 2, 4])
    np.testing.assert_array_equal(rows.columns, [0, 2, 0, 1])
    np.testing.assert_array_equal(rows.values, [4, 2, 3, 1])
    assert (rows.num_rows, rows.num_columns) == (3, 4)


def test_rows_by_item_worked_out_by_hand():
    rows = SparseRows.from_ratings(make_ratings(), rows="item")
    np.testing.assert_array_equal(rows.row_splits, [0, 2, 3, 4, 4])
    np.testing.assert_array_equal(rows.columns, [0, 2, 2, 0])
    np.testing.assert_array_equal(rows.values, [4, 3, 1, 2])
    assert rows.row_splits.dtype == np.int64
    assert rows.columns.dtype == np.int32


@pytest.mark.parametrize("rows", ["user", "item"])
def test_rows_of_many_ratings(rows):
    ratings = generated_ratings.generate(50, 70, 900)
    dense = dense_of(ratings)
    expected = dense if rows == "user" else dense.T
    compressed = SparseRows.from_ratings(ratings, rows=rows)
    np.testing.assert_array_equal(matrix(compressed), expected)


def test_unknown_rows():
    with pytest.raises(InputError, match="rows='movie'"):
        SparseRows.from_ratings(make_ratings(), rows="movie")


def test_batches_hold_the_same_rows_of_both():
    train, held_out = generated_ratings.generate(50, 70, 900).split(0.2)
    inputs, targets = (
        SparseRows.from_ratings(part, rows="item") for part in (train, held_out)
    )
    batches = list(sparse_rows.dataset(inputs, targets, 32))
    assert [x.shape.as_list() for x, _ in batches] == [
        [32, 50],
        [32, 50],
        [6, 50],
    ]
    for side, rows in enumerate((inputs, targets)):
        joined = np.concatenate([to_numpy(batch[side]) for batch in batches])
        np.testing.assert_array_equal(joined, matrix(rows))


def test_indices_are_in_canonical_order():
    rows = SparseRows.from_ratings(generated_ratings.generate(50, 70, 900))
    for batch, _ in sparse_rows.dataset(rows, rows, 16, shuffle=True):
        keys = batch.indices.numpy() @ [70, 1]
        assert len(keys) and np.all(np.diff(keys) > 0)


def test_shuffling_is_new_in_each_epoch_and_keeps_pairs_together():
    ratings = generated_ratings.generate(50, 70, 900)
    rows = SparseRows.from_ratings(ratings)
    # Targets that can be computed from the inputs.
    doubled = SparseRows(rows.row_splits, rows.columns, 2 * rows.values, 70)
    dataset = sparse_rows.dataset(rows, doubled, 50, shuffle=True, seed=1)
    epochs = []
    for _ in range(2):
        ((inputs, targets),) = list(dataset)
        inputs, targets = to_numpy(inputs), to_numpy(targets)
        np.testing.assert_array_equal(targets, 2 * inputs)
        epochs.append(inputs)
    assert not np.array_equal(epochs[0], matrix(rows))
    assert not np.array_equal(epochs[0], epochs[1])
    for epoch in epochs:  # Each row once; no two users have the same ratings.
        np.testing.assert_array_equal(
            np.unique(epoch, axis=0), np.unique(matrix(rows), axis=0)
        )


def test_same_seed_same_order():
    rows = SparseRows.from_ratings(generated_ratings.generate(50, 70, 900))
    first, again, other = (
        to_numpy(next(iter(sparse_rows.dataset(rows, rows, 50, True, seed)))[0])
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_empty_rows_and_an_empty_batch():
    rows = SparseRows.from_ratings(make_ratings())
    batches = [to_numpy(x) for x, _ in sparse_rows.dataset(rows, rows, 1)]
    np.testing.assert_array_equal(np.concatenate(batches), matrix(rows))


def test_static_shape_and_number_of_batches():
    import tensorflow as tf

    rows = SparseRows.from_ratings(generated_ratings.generate(50, 70, 900))
    dataset = sparse_rows.dataset(rows, rows, 16)
    spec = tf.SparseTensorSpec([None, 70], tf.float32)
    assert dataset.element_spec == (spec, spec)
    assert dataset.cardinality().numpy() == 4


def test_arrays_are_copied_to_tensors_once():
    rows = SparseRows.from_ratings(make_ratings())
    assert rows.tensors is rows.tensors
    assert all("CPU:0" in tensor.device for tensor in rows.tensors)


def test_keras_builds_and_trains_a_model_from_it():
    import keras

    rows = SparseRows.from_ratings(generated_ratings.generate(50, 70, 900))
    inputs = keras.Input((70,), sparse=True)
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))

    class Mean(keras.losses.Loss):
        def call(self, y_true, y_pred):
            import tensorflow as tf

            total = tf.reshape(tf.sparse.reduce_sum(y_true, 1), [-1, 1])
            return keras.ops.square(total / 70 - y_pred)

    model.compile(keras.optimizers.Adam(0.01), loss=Mean())
    dataset = sparse_rows.dataset(rows, rows, 16, shuffle=True)
    losses = model.fit(dataset, epochs=5, shuffle=False, verbose=0).history[
        "loss"
    ]
    assert losses[-1] < losses[0]


def test_batch_without_rows():
    rows = SparseRows.from_ratings(make_ratings())
    with pytest.raises(InputError, match="global_batch_size=0"):
        sparse_rows.dataset(rows, rows, 0)


def test_inputs_and_targets_of_different_shapes():
    users, items = (
        SparseRows.from_ratings(make_ratings(), rows=rows)
        for rows in ("user", "item")
    )
    with pytest.raises(ValueError, match=r"\(3, 4\) and \(4, 3\)"):
        sparse_rows.dataset(users, items, 2)
