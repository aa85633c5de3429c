import numpy as np

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
    _, other = make().split(held_out=0.2, seed=4)
    assert not np.array_equal(held_out.users, other.users)


def test_split_keeps_ratings_whole_and_in_order():
    for part in make().split(held_out=0.3):
        np.testing.assert_array_equal(part.users, part.values)
        assert np.all(np.diff(part.users) > 0)


def test_both_parts_keep_all_users_and_items():
    for part in make().split():
        assert (part.num_users, part.num_items) == (100, 1)


def test_parts_say_what_they_are():
    train, held_out = make().split(held_out=0.1)
    assert train.description == "made by hand; 90% for training"
    assert held_out.description == "made by hand; 10% held out"
