"""Ratings to test on that are given as a file, as published splits are."""

from pathlib import Path

import numpy as np

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import movielens
from kerasmgpu.recipes.datasets.ratings import Ratings


def load(train_path, test_path, cache_dir=None):
    """Loads a split whose two parts are files, or what `movielens.load` takes.

    MovieLens comes with such splits: `u1.base` and `u1.test` of ml-100k,
    `r1.train` and `r1.test` that the `split_ratings.sh` of ml-10m writes.

    Returns:
        `Ratings` to train on; `Ratings` to test on, of users and items that
        have ratings to train on, and numbered as there; and a float32 array
        of the other ratings to test on.
    """
    train = movielens.load(train_path, cache_dir)
    given = movielens.load(test_path, cache_dir)
    users, is_user = _positions(train.user_ids, given.user_ids)
    items, is_item = _positions(train.item_ids, given.item_ids)
    known = is_user[given.users] & is_item[given.items]
    if not known.any():
        raise InputError(
            "No rating to test on is of a user and an item that are trained "
            f"on. Received: --data_path={train_path} and "
            f"--test_path={test_path}; give the two files of one split"
        )
    name = Path(test_path).name
    test = Ratings(
        users=users[given.users[known]],
        items=items[given.items[known]],
        values=given.values[known],
        user_ids=train.user_ids,
        item_ids=train.item_ids,
        description=f"{name}: {len(given):,} ratings to test on",
    )
    _require_apart(train, test, train_path, test_path)
    return train, test, given.values[~known]


def _positions(ids, sought):
    """Where each of `sought` is in the rising `ids`, and whether it is."""
    positions = np.searchsorted(ids, sought)
    positions[positions == len(ids)] = 0
    return positions.astype(np.int32), ids[positions] == sought


def _require_apart(train, test, train_path, test_path):
    """Raises where a rating is in both: it would be known beforehand."""
    shared = np.isin(test.keys, train.keys)
    if shared.any():
        user, item = divmod(int(test.keys[shared][0]), train.num_items)
        raise InputError(
            "What is tested on can't be trained on. Received: "
            f"--data_path={train_path} and --test_path={test_path}, which "
            f"share {shared.sum():,} ratings, such as that of item "
            f"{train.item_ids[item]} by user {train.user_ids[user]}; give the "
            "two files of one split, such as u1.base and u1.test"
        )
