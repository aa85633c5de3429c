"""Ratings are split whole; biases are those of a direct solution; generated ones."""

import numpy as np
import pytest

from kerasmgpu.recipes.datasets import ratings
from kerasmgpu.recipes.datasets.ratings import Ratings


def by_hand(users, items, values):
    return Ratings(
        np.array(users, np.int32),
        np.array(items, np.int32),
        np.array(values, np.float32),
        np.arange(max(users) + 1),
        np.arange(max(items) + 1),
        "by hand",
    )


def in_a_row():
    """Rating `k` of 100 is by user `k`, of item 0, with the value `k`."""
    return by_hand(range(100), [0] * 100, range(100))


def test_a_split_keeps_ratings_whole_and_in_order_and_says_what_is_what():
    parts = in_a_row().split(held_out=0.2, seed=3)
    assert [len(part) for part in parts] == [80, 20]
    together = np.concatenate([part.values for part in parts])
    np.testing.assert_array_equal(np.sort(together), np.arange(100))
    for part, name in zip(parts, ("80% for training", "20% held out")):
        np.testing.assert_array_equal(part.users, part.values)
        assert np.all(np.diff(part.users) > 0)
        # The numbering stays.
        assert (part.num_users, part.num_items) == (100, 1)
        assert part.description == f"by hand; {name}"
    _, other = in_a_row().split(held_out=0.2, seed=4)
    assert not np.array_equal(parts[1].users, other.users)


def test_biases_solve_the_penalised_least_squares(monkeypatch):
    monkeypatch.setattr(ratings, "_SHRINKAGE", 3.0)
    monkeypatch.setattr(ratings, "_ROUNDS", 100)
    rng = np.random.default_rng(0)
    pairs = rng.permutation(12 * 7)[:50]
    known = by_hand(pairs // 7, pairs % 7, rng.integers(1, 6, 50))
    users, items = known.num_users, known.num_items
    design = np.zeros((len(known), users + items))
    design[np.arange(len(known)), known.users] = 1
    design[np.arange(len(known)), users + known.items] = 1
    mean = known.values.mean(dtype=np.float64)
    expected = np.linalg.solve(
        design.T @ design + 3.0 * np.eye(users + items),
        design.T @ (known.values - mean),
    )
    biases = ratings.fit_biases(known)
    np.testing.assert_allclose(
        np.concatenate([biases.user_biases, biases.item_biases]),
        expected,
        atol=1e-5,
    )


def test_one_rating_is_shrunk_to_a_sixth(monkeypatch):
    monkeypatch.setattr(ratings, "_ROUNDS", 1)
    # Mean 3. The item's bias comes first: 2 / (1 + 5) of what is left.
    biases = ratings.fit_biases(by_hand([0, 1], [0, 1], [5, 1]))
    np.testing.assert_allclose(biases.item_biases, [2 / 6, -2 / 6], rtol=1e-6)
    np.testing.assert_allclose(
        biases.user_biases, [10 / 36, -10 / 36], rtol=1e-6
    )


def test_rmse_holds_predictions_to_the_scale():
    biases = ratings.Biases(
        mean=3.0,
        user_biases=np.array([4.0, 0.0], np.float32),
        item_biases=np.array([0.0, -1.0], np.float32),
        min_rating=1.0,
        max_rating=5.0,
    )
    # Predicts 7, held to 5, and 2: errors 1 and 0.
    error = biases.root_mean_squared_error(by_hand([0, 1], [0, 1], [4, 2]))
    np.testing.assert_allclose(error, np.sqrt(0.5))


def test_the_default_is_like_movielens():
    made = ratings.generate()
    assert len(made) == 60_000
    assert (made.num_users, made.num_items) == (600, 1700)
    assert made.description.startswith("generated, not real: 60,000")
    # In the order of files, no pair twice.
    assert np.all(np.diff(made.keys) > 0)
    by_user, by_item = (
        np.sort(np.bincount(positions, minlength=count))[::-1]
        for positions, count in ((made.users, 600), (made.items, 1700))
    )
    assert (by_user.min() >= 20) and (by_item.min() >= 1)
    # Of MovieLens-1M, a tenth of the users made 35 % of the ratings, and a
    # tenth of the movies received 43 %; of even ones it would be 10 %.
    for counts in (by_user, by_item):
        assert 0.25 < counts[: len(counts) // 10].sum() / 60_000 < 0.7
    values = made.values
    np.testing.assert_array_equal(np.unique(values), np.arange(1, 5.1, 0.5))
    assert 3.2 < values.mean() < 3.8
    assert 0.8 < values.std() < 1.2


@pytest.mark.parametrize("preference", [0.0, 0.5])
def test_preferences_tell_users_apart(monkeypatch, preference):
    monkeypatch.setattr(ratings, "_PREFERENCE", preference)
    monkeypatch.setattr(ratings, "_NOISE", 0.0)
    made = ratings.generate(4, 200, 400)
    table = np.full((4, 200), np.nan)
    table[made.users, made.items] = made.values
    table[(table == 1) | (table == 5)] = np.nan  # clipped
    differences = table[1:] - table[0]
    spread = np.nanmax(differences, 1) - np.nanmin(differences, 1)
    # By biases alone two users differ alike on every item, to the rounding.
    assert (spread.max() > 1.5) if preference else (spread.max() <= 1.0)


def test_same_seed_same_ratings():
    first, again, other = (
        ratings.generate(50, 60, 900, seed=seed) for seed in (4, 4, 5)
    )
    np.testing.assert_array_equal(first.items, again.items)
    np.testing.assert_array_equal(first.values, again.values)
    assert not np.array_equal(first.values, other.values)


@pytest.mark.parametrize("sizes", [(3, 2, 3), (10, 10, 50), (1000, 20, 1000)])
def test_smallest_and_densest(sizes):
    num_users, num_items, num_ratings = sizes
    made = ratings.generate(*sizes)
    assert len(np.unique(made.keys)) == len(made) == num_ratings
    assert np.unique(made.users).size == num_users
    assert np.unique(made.items).size == num_items
