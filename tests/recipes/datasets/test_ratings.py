import subprocess
import sys

import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets.ratings import Ratings


def make(num_ratings=100, **changes):
    """Rating `k` is by user `k`, of item 0, with the value `k`."""
    arrays = {
        "users": np.arange(num_ratings, dtype=np.int32),
        "items": np.zeros(num_ratings, np.int32),
        "values": np.arange(num_ratings, dtype=np.float32),
        "user_ids": np.arange(num_ratings) + 1,
        "item_ids": np.array([5]),
        "description": "made by hand",
    }
    return Ratings(**{**arrays, **changes})


def test_split_puts_every_rating_in_one_part():
    train, held_out = make().split(held_out=0.2, seed=3)
    assert (len(train), len(held_out)) == (80, 20)
    together = np.concatenate([train.values, held_out.values])
    np.testing.assert_array_equal(np.sort(together), np.arange(100))


def test_split_keeps_ratings_whole_and_in_order():
    for part in make().split(held_out=0.3):
        np.testing.assert_array_equal(part.users, part.values)
        assert np.all(np.diff(part.users) > 0)


def test_both_parts_keep_all_users_and_items():
    for part in make().split():
        assert (part.num_users, part.num_items) == (100, 1)


def test_same_seed_same_split_other_seed_other_split():
    first, again, other = (make().split(seed=s)[1].users for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_split_is_spread_over_all_ratings():
    # Of 1,000 the 100 held out have the mean 499.5 with a standard error of
    # 27; five of those never happen by chance.
    _, held_out = make(1000).split(held_out=0.1, seed=0)
    assert abs(held_out.values.mean() - 499.5) < 137


def test_no_part_is_empty():
    assert [len(part) for part in make(2).split(held_out=0.001)] == [1, 1]
    assert [len(part) for part in make(2).split(held_out=0.999)] == [1, 1]


def test_parts_say_what_they_are():
    train, held_out = make().split(held_out=0.1)
    assert train.description == "made by hand; 90% for training"
    assert held_out.description == "made by hand; 10% held out"


def test_one_rating_cannot_be_split():
    with pytest.raises(InputError, match="at least two ratings"):
        make(1).split()


def test_reading_ratings_does_not_import_tensorflow():
    program = (
        "import sys; from kerasmgpu.recipes.datasets import movielens, "
        "generated_ratings, sparse_rows; sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
