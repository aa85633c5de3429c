"""Ratings are split whole; biases are those of a direct solution."""

import numpy as np

from kerasmgpu.recipes.datasets import ratings
from kerasmgpu.recipes.datasets.ratings import Ratings


def made(users, items, values):
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
    return made(range(100), [0] * 100, range(100))


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
    known = made(pairs // 7, pairs % 7, rng.integers(1, 6, 50))
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
    biases = ratings.fit_biases(made([0, 1], [0, 1], [5, 1]))
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
    error = biases.root_mean_squared_error(made([0, 1], [0, 1], [4, 2]))
    np.testing.assert_allclose(error, np.sqrt(0.5))
