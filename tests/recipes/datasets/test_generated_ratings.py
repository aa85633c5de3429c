import numpy as np
import pytest

from kerasmgpu.recipes.datasets import generated_ratings


@pytest.fixture(scope="module")
def ratings():
    return generated_ratings.generate()


def test_counts_are_those_asked_for(ratings):
    assert len(ratings) == 60_000
    assert (ratings.num_users, ratings.num_items) == (600, 1700)
    assert ratings.description.startswith("generated, not real: 60,000")


def test_ordered_and_no_pair_twice(ratings):
    keys = ratings.users.astype(np.int64) * 1700 + ratings.items
    assert np.all(np.diff(keys) > 0)


def test_every_user_and_item_takes_part(ratings):
    assert np.bincount(ratings.users, minlength=600).min() >= 20
    assert np.bincount(ratings.items, minlength=1700).min() >= 1


def test_activity_and_popularity_are_skewed(ratings):
    # Of MovieLens-1M, a tenth of the users made 35 % of the ratings, and a
    # tenth of the movies received 43 %; of even ones it would be 10 %.
    for positions, count in ((ratings.users, 600), (ratings.items, 1700)):
        counts = np.sort(np.bincount(positions, minlength=count))[::-1]
        assert 0.25 < counts[: count // 10].sum() / 60_000 < 0.7


def test_half_stars_from_one_to_five(ratings):
    np.testing.assert_array_equal(
        np.unique(ratings.values), np.arange(1, 5.1, 0.5)
    )
    assert 3.2 < ratings.values.mean() < 3.8
    assert 0.8 < ratings.values.std() < 1.2


def spread_of_differences(monkeypatch, preference):
    """How much the difference of two users varies over items, in stars."""
    monkeypatch.setattr(generated_ratings, "_PREFERENCE", preference)
    monkeypatch.setattr(generated_ratings, "_NOISE", 0.0)
    ratings = generated_ratings.generate(4, 200, 400)
    table = np.full((4, 200), np.nan)
    table[ratings.users, ratings.items] = ratings.values
    table[(table == 1) | (table == 5)] = np.nan  # clipped
    differences = table[1:] - table[0]
    return np.nanmax(differences, 1) - np.nanmin(differences, 1)


def test_without_preferences_and_noise_only_biases_are_left(monkeypatch):
    # The difference of two users is the same on every item, to the rounding.
    assert spread_of_differences(monkeypatch, preference=0.0).max() <= 1.0


def test_preferences_tell_users_apart(monkeypatch):
    assert spread_of_differences(monkeypatch, preference=0.5).max() > 1.5


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
    assert len(ratings) == num_ratings
    assert np.unique(ratings.users).size == num_users
    assert np.unique(ratings.items).size == num_items
    keys = ratings.users.astype(np.int64) * num_items + ratings.items
    assert np.unique(keys).size == num_ratings
