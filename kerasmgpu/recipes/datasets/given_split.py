"""Published splits of ratings, given as two files."""

from pathlib import Path

import numpy as np
from numpy import ndarray as Array

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import movielens
from kerasmgpu.recipes.datasets.ratings import Ratings


def load(
    train_path: str, test_path: str, cache_dir: str | None = None
) -> tuple[Ratings, Ratings, Array]:
    """Loads the two parts of a split; each as `movielens.load` does.

    Such splits are `u1.base` and `u1.test` of ml-100k, and `r1.train` and
    `r1.test`, which ml-10m's `split_ratings.sh` writes. Returns training
    ratings; test ratings of users and items that have training ratings, with
    the same numbers; and a float32 array of the other test ratings.
    """
    train = movielens.load(train_path, cache_dir)
    given = movielens.load(test_path, cache_dir)
    users, is_user = _positions(train.user_ids, given.user_ids)
    items, is_item = _positions(train.item_ids, given.item_ids)
    known = is_user[given.users] & is_item[given.items]
    paths = f"--data_path={train_path} and --test_path={test_path}"
    if not known.any():
        raise InputError(
            "No test rating has a user and an item with training ratings. "
            f"Received: {paths}; give the two files of one split"
        )
    test = Ratings(
        users[given.users[known]],
        items[given.items[known]],
        given.values[known],
        train.user_ids,
        train.item_ids,
        f"{Path(test_path).name}: {len(given):,} ratings to test on",
    )
    shared = np.intersect1d(test.keys, train.keys, assume_unique=True)
    if len(shared):
        key = test.keys[np.isin(test.keys, shared)][0]
        user, item = divmod(int(key), train.num_items)
        raise InputError(
            "Test ratings can't be training ratings as well. Received: "
            f"{paths}, which share {len(shared):,} ratings, such as that of "
            f"item {train.item_ids[item]} by user {train.user_ids[user]}; give "
            "the two files of one split, such as u1.base and u1.test"
        )
    return train, test, given.values[~known]


def _positions(ids: Array, sought: Array) -> tuple[Array, Array]:
    """Positions of `sought` in the sorted `ids`, and a mask of those found."""
    positions = np.searchsorted(ids, sought).astype(np.int32) % len(ids)
    return positions, ids[positions] == sought
