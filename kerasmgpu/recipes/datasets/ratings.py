"""Ratings of items by users as plain arrays, and the biases that explain them."""

import dataclasses

import numpy as np

from kerasmgpu.recipes.datasets import row_order

# Both shrink an estimate from few ratings towards 0: with 5 ratings a bias
# counts half. Not tuned to a data set; values from 3 to 10 differ little.
_SHRINKAGE = 5.0
# The two sets of biases depend on each other; they settle within a few rounds.
_ROUNDS = 10


# Arrays have no single truth value, so the generated `==` would only raise.
@dataclasses.dataclass(frozen=True, eq=False)
class Ratings:
    """User `users[k]` gave item `items[k]` the rating `values[k]`.

    Users and items are numbered densely from 0; no pair occurs twice. `users`
    and `items` are int32 and `values` float32, `[ratings]`. `user_ids` and
    `item_ids` are int64: the file's ids in increasing order, including ids
    without ratings in this part. `description` is one line about the source.
    """

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    user_ids: np.ndarray
    item_ids: np.ndarray
    description: str

    @property
    def num_users(self) -> int:
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        return len(self.item_ids)

    @property
    def keys(self) -> np.ndarray:
        """int64 `[ratings]`: one number per pair, ordered by user, then item."""
        return self.users.astype(np.int64) * self.num_items + self.items

    def __len__(self) -> int:
        return len(self.values)

    def split(
        self, held_out: float = 0.1, seed: int = 0
    ) -> tuple["Ratings", "Ratings"]:
        """Splits at random; both parts keep the order and the numbering."""
        is_held_out = row_order.held_out_rows(
            len(self), held_out, seed, "ratings", self.description
        )
        return (
            self._part(~is_held_out, f"{1 - held_out:.0%} for training"),
            self._part(is_held_out, f"{held_out:.0%} held out"),
        )

    def _part(self, chosen: np.ndarray, name: str) -> "Ratings":
        return dataclasses.replace(
            self,
            users=self.users[chosen],
            items=self.items[chosen],
            values=self.values[chosen],
            description=f"{self.description}; {name}",
        )


@dataclasses.dataclass(frozen=True)
class Biases:
    """Additive model of ratings: `mean + user_biases[u] + item_biases[i]`.

    `user_biases` and `item_biases` are float32, `[users]` and `[items]`;
    `min_rating` and `max_rating` are the ends of the scale.
    """

    mean: float
    user_biases: np.ndarray
    item_biases: np.ndarray
    min_rating: float
    max_rating: float

    def root_mean_squared_error(self, ratings: Ratings) -> float:
        """RMSE of this model on `ratings`, predictions clipped to the scale."""
        predictions = self.mean + self.user_biases[ratings.users]
        predictions += self.item_biases[ratings.items]
        predictions = np.clip(predictions, self.min_rating, self.max_rating)
        squares = np.square(predictions - ratings.values, dtype=np.float64)
        return float(np.sqrt(np.mean(squares)))


def fit_biases(ratings: Ratings) -> Biases:
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


def _shrunk_means(
    positions: np.ndarray, values: np.ndarray, size: int
) -> np.ndarray:
    """Mean of the `values` at each position, shrunk towards 0, `[size]`."""
    sums = np.bincount(positions, values, minlength=size)
    counts = np.bincount(positions, minlength=size)
    return (sums / (counts + _SHRINKAGE)).astype(np.float32)
