"""The bias baseline against a direct solution of the same least squares."""

import numpy as np

from kerasmgpu.recipes.datasets import rating_biases
from kerasmgpu.recipes.datasets.ratings import Ratings


def make_ratings(users, items, values):
    return Ratings(
        np.array(users, np.int32),
        np.array(items, np.int32),
        np.array(values, np.float32),
        np.arange(max(users) + 1),
        np.arange(max(items) + 1),
        "by hand",
    )


def some_ratings():
    rng = np.random.default_rng(0)
    pairs = rng.permutation(12 * 7)[:50]
    return make_ratings(pairs // 7, pairs % 7, rng.integers(1, 6, 50))


def test_biases_solve_the_penalised_least_squares(monkeypatch):
    monkeypatch.setattr(rating_biases, "_SHRINKAGE", 3.0)
    monkeypatch.setattr(rating_biases, "_ROUNDS", 100)
    ratings = some_ratings()
    users, items = ratings.num_users, ratings.num_items
    design = np.zeros((len(ratings), users + items))
    design[np.arange(len(ratings)), ratings.users] = 1
    design[np.arange(len(ratings)), users + ratings.items] = 1
    mean = ratings.values.mean(dtype=np.float64)
    expected = np.linalg.solve(
        design.T @ design + 3.0 * np.eye(users + items),
        design.T @ (ratings.values - mean),
    )
    biases = rating_biases.fit(ratings)
    np.testing.assert_allclose(
        np.concatenate([biases.user_biases, biases.item_biases]),
        expected,
        atol=1e-5,
    )


def test_one_rating_is_shrunk_to_a_sixth(monkeypatch):
    monkeypatch.setattr(rating_biases, "_ROUNDS", 1)
    # Mean 3. The item's bias comes first: 2 / (1 + 5) of what is left.
    biases = rating_biases.fit(make_ratings([0, 1], [0, 1], [5, 1]))
    np.testing.assert_allclose(biases.item_biases, [2 / 6, -2 / 6], rtol=1e-6)
    np.testing.assert_allclose(
        biases.user_biases, [10 / 36, -10 / 36], rtol=1e-6
    )


def test_rmse_holds_predictions_to_the_scale():
    biases = rating_biases.Biases(
        mean=3.0,
        user_biases=np.array([4.0, 0.0], np.float32),
        item_biases=np.array([0.0, -1.0], np.float32),
        min_rating=1.0,
        max_rating=5.0,
    )
    ratings = make_ratings([0, 1], [0, 1], [4, 2])
    # Predicts 7, held to 5, and 2: errors 1 and 0.
    np.testing.assert_allclose(
        biases.root_mean_squared_error(ratings), np.sqrt(0.5)
    )
