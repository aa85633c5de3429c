"""`rating ≈ mean + user bias + item bias`: the baseline of rating models."""

import dataclasses

import numpy as np
from numpy import ndarray as Array

from kerasmgpu.recipes.datasets.ratings import Ratings

# Both shrink an estimate from few ratings towards 0: with 5 ratings a bias
# counts half. Not tuned to a data set; values from 3 to 10 differ little.
_SHRINKAGE = 5.0
# The two sets of biases depend on each other; they settle within a few rounds.
_ROUNDS = 10


@dataclasses.dataclass(frozen=True)
class Biases:
    """Additive model of ratings: `mean + user_biases[u] + item_biases[i]`.

    `user_biases` and `item_biases` are float32, `[users]` and `[items]`;
    `min_rating` and `max_rating` are the ends of the scale.
    """

    mean: float
    user_biases: Array
    item_biases: Array
    min_rating: float
    max_rating: float

    def root_mean_squared_error(self, ratings: Ratings) -> float:
        """RMSE of this model on `ratings`, predictions clipped to the scale."""
        predictions = self.mean + self.user_biases[ratings.users]
        predictions += self.item_biases[ratings.items]
        predictions = np.clip(predictions, self.min_rating, self.max_rating)
        squares = np.square(predictions - ratings.values, dtype=np.float64)
        return float(np.sqrt(np.mean(squares)))


def fit(ratings: Ratings) -> Biases:
    """Fits `Biases` to ratings by alternating shrunk means.

    Each round sets every item's bias to `Σ (rating - mean - user bias) /
    (count + shrinkage)`, then every user's likewise: coordinate descent on the
    squared error with an L2 penalty (Koren, "Factor in the Neighbors", TKDD
    2010, section 2.1).
    """
    values = ratings.values
    mean = float(np.mean(values, dtype=np.float64))
    centred = values - np.float32(mean)
    users = np.zeros(ratings.num_users, np.float32)
    for _ in range(_ROUNDS):
        rest = centred - users[ratings.users]
        items = _shrunk_means(ratings.items, rest, ratings.num_items)
        rest = centred - items[ratings.items]
        users = _shrunk_means(ratings.users, rest, ratings.num_users)
    return Biases(mean, users, items, float(values.min()), float(values.max()))


def _shrunk_means(positions: Array, values: Array, size: int) -> Array:
    """Mean of the `values` at each position, shrunk towards 0, `[size]`."""
    sums = np.bincount(positions, values, minlength=size)
    counts = np.bincount(positions, minlength=size)
    return (sums / (counts + _SHRINKAGE)).astype(np.float32)
