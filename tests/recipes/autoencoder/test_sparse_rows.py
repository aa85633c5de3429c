import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.autoencoder import generated_ratings
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


def test_arrays_are_copied_to_tensors_once():
    rows = SparseRows.from_ratings(make_ratings())
    assert rows.tensors is rows.tensors
    assert all("CPU:0" in tensor.device for tensor in rows.tensors)
