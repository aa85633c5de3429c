"""What is known of a rating before any network: who rates how, and what.

Some users are kind and some items are good. `rating ≈ mean + user bias + item
bias` is the baseline that a model of tastes has to beat, and what the network
takes out of its input. NumPy only.
"""

import dataclasses

import numpy as np

# Both shrink an estimate from few ratings towards 0: with 5 ratings a bias
# counts half. Not tuned to a data set; values from 3 to 10 differ little.
SHRINKAGE = 5.0
# The two sets of biases depend on each other; they settle within a few rounds.
ROUNDS = 10


@dataclasses.dataclass(frozen=True)
class Biases:
    """Additive model of ratings: `mean + user_biases[u] + item_biases[i]`.

    Args:
        mean: Float, mean of all ratings.
        user_biases: float32 `[num_users]`.
        item_biases: float32 `[num_items]`.
        min_rating: Float, lowest rating seen.
        max_rating: Float, highest rating seen.
    """

    mean: float
    user_biases: np.ndarray
    item_biases: np.ndarray
    min_rating: float
    max_rating: float

    def root_mean_squared_error(self, ratings):
        """RMSE of this model on `ratings`, predictions held to the scale."""
        predictions = (
            self.mean
            + self.user_biases[ratings.users]
            + self.item_biases[ratings.items]
        )
        predictions = np.clip(predictions, self.min_rating, self.max_rating)
        squares = np.square(predictions - ratings.values, dtype=np.float64)
        return float(np.sqrt(np.mean(squares)))


def fit(ratings, shrinkage=SHRINKAGE, rounds=ROUNDS):
    """Fits the biases by alternating shrunk means.

    Each round sets every item's bias to `Σ (rating - mean - user bias) /
    (count + shrinkage)`, then every user's likewise: coordinate descent on the
    squared error with an L2 penalty (Koren, "Factor in the Neighbors", TKDD
    2010, section 2.1).

    Args:
        ratings: `ratings.Ratings`, the training part only.
        shrinkage: Float, weight of the penalty in ratings. Defaults to `5.0`.
        rounds: Number of alternations. Defaults to `10`.

    Returns:
        A `Biases`.
    """
    values = ratings.values
    mean = float(np.mean(values, dtype=np.float64))
    users = np.zeros(ratings.num_users, np.float32)
    items = np.zeros(ratings.num_items, np.float32)
    for _ in range(rounds):
        rest = values - np.float32(mean) - users[ratings.users]
        items = _shrunk_means(ratings.items, rest, ratings.num_items, shrinkage)
        rest = values - np.float32(mean) - items[ratings.items]
        users = _shrunk_means(ratings.users, rest, ratings.num_users, shrinkage)
    return Biases(
        mean, users, items, float(np.min(values)), float(np.max(values))
    )


def _shrunk_means(positions, values, size, shrinkage):
    """Mean of the `values` at each position, shrunk towards 0, `[size]`."""
    sums = np.bincount(positions, values, minlength=size)
    counts = np.bincount(positions, minlength=size)
    return (sums / (counts + shrinkage)).astype(np.float32)
