"""Generated ratings have MovieLens's distributions, and something to learn."""

import numpy as np
import pytest

from kerasmgpu.recipes.datasets import generated_ratings


def test_the_default_is_like_movielens():
    ratings = generated_ratings.generate()
    assert len(ratings) == 60_000
    assert (ratings.num_users, ratings.num_items) == (600, 1700)
    assert ratings.description.startswith("generated, not real: 60,000")
    # In the order of files, no pair twice.
    assert np.all(np.diff(ratings.keys) > 0)
    by_user, by_item = (
        np.sort(np.bincount(positions, minlength=count))[::-1]
        for positions, count in ((ratings.users, 600), (ratings.items, 1700))
    )
    assert (by_user.min() >= 20) and (by_item.min() >= 1)
    # Of MovieLens-1M, a tenth of the users made 35 % of the ratings, and a
    # tenth of the movies received 43 %; of even ones it would be 10 %.
    for counts in (by_user, by_item):
        assert 0.25 < counts[: len(counts) // 10].sum() / 60_000 < 0.7
    values = ratings.values
    np.testing.assert_array_equal(np.unique(values), np.arange(1, 5.1, 0.5))
    assert 3.2 < values.mean() < 3.8
    assert 0.8 < values.std() < 1.2


@pytest.mark.parametrize("preference", [0.0, 0.5])
def test_preferences_tell_users_apart(monkeypatch, preference):
    monkeypatch.setattr(generated_ratings, "_PREFERENCE", preference)
    monkeypatch.setattr(generated_ratings, "_NOISE", 0.0)
    ratings = generated_ratings.generate(4, 200, 400)
    table = np.full((4, 200), np.nan)
    table[ratings.users, ratings.items] = ratings.values
    table[(table == 1) | (table == 5)] = np.nan  # clipped
    differences = table[1:] - table[0]
    spread = np.nanmax(differences, 1) - np.nanmin(differences, 1)
    # By biases alone two users differ alike on every item, to the rounding.
    assert (spread.max() > 1.5) if preference else (spread.max() <= 1.0)


def test_same_seed_same_ratings():
    first, again, other = (
        generated_ratings.generate(50, 60, 900, seed=seed) for seed in (4, 4, 5)
    )
    np.testing.assert_array_equal(first.items, again.items)
    np.testing.assert_array_equal(first.values, again.values)
    assert not np.array_equal(first.values, other.values)


@pytest.mark.parametrize("sizes", [(3, 2, 3), (10, 10, 50), (1000, 20, 1000)])
def test_smallest_and_densest(sizes):
    num_users, num_items, num_ratings = sizes
    ratings = generated_ratings.generate(*sizes)
    assert len(np.unique(ratings.keys)) == len(ratings) == num_ratings
    assert np.unique(ratings.users).size == num_users
    assert np.unique(ratings.items).size == num_items
