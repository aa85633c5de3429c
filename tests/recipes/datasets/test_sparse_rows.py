import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.recipes.datasets import row_order, sparse_rows
from kerasmgpu.recipes.datasets.ratings import Ratings, generate
from kerasmgpu.recipes.datasets.sparse_rows import SparseRows


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
    ratings = generate(50, 70, 900)
    dense = dense_of(ratings)
    expected = dense if rows == "user" else dense.T
    compressed = SparseRows.from_ratings(ratings, rows=rows)
    np.testing.assert_array_equal(matrix(compressed), expected)


@pytest.fixture(scope="module")
def parts():
    """Ratings to train on and held out, by item: 70 rows of 50 users."""
    return generate(50, 70, 900).split(0.2)


def batches_of(parts, **keywords):
    rows = [SparseRows.from_ratings(part, rows="item") for part in parts]
    keywords = {"global_batch_size": 32, "seed": 0, **keywords}
    return sparse_rows.training_and_validation(*rows, **keywords)


def to_numpy(sparse):
    dense = np.zeros(sparse.dense_shape.numpy(), np.float32)
    dense[tuple(sparse.indices.numpy().T)] = sparse.values.numpy()
    return dense


def test_validation_predicts_held_out_ratings_of_the_same_rows(parts):
    _, validation = batches_of(parts)
    assert validation.cardinality().numpy() == 3
    batches = list(validation)
    assert [x.shape.as_list() for x, _ in batches] == [
        [32, 50],
        [32, 50],
        [6, 50],
    ]
    for side, part in enumerate(parts):
        joined = np.concatenate([to_numpy(batch[side]) for batch in batches])
        np.testing.assert_array_equal(joined, dense_of(part).T)


@pytest.mark.parametrize("first_step", [0, 2])
def test_training_rebuilds_the_rows_of_the_seeds_order(parts, first_step):
    training, _ = batches_of(parts, seed=1, first_step=first_step)
    order = row_order.batches(70, 32, seed=1, first_step=first_step).take(4)
    expected = dense_of(parts[0]).T
    for rows, (inputs, targets) in zip(order, training, strict=False):
        np.testing.assert_array_equal(to_numpy(inputs), expected[rows])
        np.testing.assert_array_equal(to_numpy(targets), expected[rows])


def test_indices_are_in_canonical_order(parts):
    for batch, _ in batches_of(parts, global_batch_size=16)[0].take(5):
        keys = batch.indices.numpy() @ [50, 1]
        assert len(keys) and np.all(np.diff(keys) > 0)


def test_empty_rows_and_an_empty_batch(parts):
    _, held_out = parts
    _, validation = batches_of([held_out, held_out], global_batch_size=1)
    batches = [to_numpy(x) for x, _ in validation]
    assert not all(batch.any() for batch in batches)
    np.testing.assert_array_equal(np.concatenate(batches), dense_of(held_out).T)


def test_the_width_of_a_batch_is_known_before(parts):
    spec = tf.SparseTensorSpec([None, 50], tf.float32)
    for data in batches_of(parts):
        assert data.element_spec == (spec, spec)
