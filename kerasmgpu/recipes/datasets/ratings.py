"""Ratings of items by users: their split, biases fitted to them, generated ones."""

import dataclasses

import numpy as np
from numpy import ndarray as Array
from numpy.random import Generator

from kerasmgpu.recipes.datasets import row_order

# Both shrink an estimate from few ratings towards 0: with 5 ratings a bias
# counts half. Not tuned to a data set; values from 3 to 10 differ little.
_SHRINKAGE = 5.0
# The two sets of biases depend on each other; they settle within a few rounds.
_ROUNDS = 10

# Star scale and spreads like those of MovieLens-25M, in stars.
_LOWEST, _HIGHEST, _STEP = 1.0, 5.0, 0.5
_MEAN, _USER_SPREAD, _ITEM_SPREAD = 3.5, 0.4, 0.45

# Factors of users and items; the standard deviations in stars of their
# product, which a model can learn, and of the noise.
_RANK, _PREFERENCE, _NOISE = 4, 0.5, 0.7

# The k-th most popular item has the weight (k + offset) ** -exponent: a
# flattened head and a long tail, as counts of MovieLens have.
_POPULARITY_OFFSET, _POPULARITY_EXPONENT = 30.0, 1.4

# Standard deviation of the logarithm of a user's number of ratings.
_ACTIVITY_SPREAD = 1.1

# Vectorised rounds of drawing with replacement; then the last ratings of the
# most active users are drawn without it, user by user.
_DRAWS = 8


# Arrays have no single truth value, so the generated `==` would only raise.
@dataclasses.dataclass(frozen=True, eq=False)
class Ratings:
    """User `users[k]` gave item `items[k]` the rating `values[k]`.

    Users and items are numbered densely from 0; no pair occurs twice. `users`
    and `items` are int32 and `values` float32, `[ratings]`. `user_ids` and
    `item_ids` are int64: the file's ids in increasing order, including ids
    without ratings in this part. `description` is one line about the source.
    """

    users: Array
    items: Array
    values: Array
    user_ids: Array
    item_ids: Array
    description: str

    @property
    def num_users(self) -> int:
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        return len(self.item_ids)

    @property
    def keys(self) -> Array:
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

    def _part(self, chosen: Array, name: str) -> "Ratings":
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


def _shrunk_means(positions: Array, values: Array, size: int) -> Array:
    """Mean of the `values` at each position, shrunk towards 0, `[size]`."""
    sums = np.bincount(positions, values, minlength=size)
    counts = np.bincount(positions, minlength=size)
    return (sums / (counts + _SHRINKAGE)).astype(np.float32)


def generate(
    num_users: int = 600,
    num_items: int = 1700,
    num_ratings: int = 60_000,
    seed: int = 0,
) -> Ratings:
    """Generates `Ratings` like those of MovieLens.

    Items differ in popularity by a power law, users in activity by a
    log-normal law. A rating is the sum of a mean, a user's and an item's bias,
    the product of a user's and an item's random factors and noise, rounded to
    half stars and clipped to 1 … 5. Every item is rated at least once, every
    user rates at least `min(20, half the average)` items, no pair occurs
    twice. At most half of all pairs can be rated. Ratings are ordered by user
    and item, as MovieLens's files are; ids count from 1.
    """
    rng = np.random.default_rng(seed)
    counts = _ratings_per_user(rng, num_users, num_items, num_ratings)
    users, items = _pairs(rng, counts, num_items)
    values = _stars(rng, users, items, num_users, num_items)
    return Ratings(
        users,
        items,
        values,
        np.arange(1, num_users + 1),
        np.arange(1, num_items + 1),
        f"generated, not real: {num_ratings:,} ratings of {num_users:,} users "
        f"and {num_items:,} items, seed {seed}",
    )


def _ratings_per_user(
    rng: Generator, num_users: int, num_items: int, num_ratings: int
) -> Array:
    average = num_ratings / num_users
    # At most half of the average: users differ in activity.
    least = max(1, min(20, int(average / 2)))
    # Popularity has no effect on a user who rates all items.
    most = max(num_items * 3 // 4, int(np.ceil(average)))
    activity = rng.lognormal(sigma=_ACTIVITY_SPREAD, size=num_users)
    extra = (num_ratings - least * num_users) * activity / activity.sum()
    counts = np.minimum(least + extra.astype(np.int64), most)
    while (missing := num_ratings - counts.sum()) > 0:
        # What rounding and the cap left over goes to users below the cap.
        below = np.flatnonzero(counts < most)
        chosen = rng.choice(below, min(missing, len(below)), replace=False)
        counts[chosen] += 1
    return counts


def _pairs(
    rng: Generator, counts: Array, num_items: int
) -> tuple[Array, Array]:
    """Draws distinct items for each user by popularity, in rising order."""
    users = np.arange(len(counts), dtype=np.int64)
    order = np.arange(num_items) + _POPULARITY_OFFSET
    popularity = rng.permutation(order**-_POPULARITY_EXPONENT)
    popularity /= popularity.sum()
    # Every item gets one of the ratings first.
    places = np.repeat(users, counts)
    rng.shuffle(places)
    keys = places[:num_items] * num_items + np.arange(num_items)
    cumulative = np.cumsum(popularity)
    cumulative[-1] = 1.0
    for _ in range(_DRAWS):
        missing = counts - np.bincount(keys // num_items, minlength=len(users))
        if not missing.any():
            break
        new = np.repeat(users * num_items, missing)
        new += np.searchsorted(cumulative, rng.random(len(new)), side="right")
        keys = np.concatenate([keys, new])
        keys.sort()
        # `np.unique` hashes, which takes a minute for 25 M distinct keys.
        keys = keys[np.r_[True, keys[1:] != keys[:-1]]]
    keys = _draw_the_rest(rng, keys, counts, popularity)
    keys.sort()
    rated_by, items = np.divmod(keys, num_items)
    return rated_by.astype(np.int32), items.astype(np.int32)


def _draw_the_rest(
    rng: Generator, keys: Array, counts: Array, popularity: Array
) -> Array:
    """Adds each user's missing ratings, drawn without replacement.

    The largest `log(weight) + Gumbel noise` are a weighted sample without
    replacement (Vieira, "Gumbel-max trick and weighted reservoir sampling",
    2014).
    """
    num_items = len(popularity)
    missing = counts - np.bincount(keys // num_items, minlength=len(counts))
    more = [keys]
    for user in np.flatnonzero(missing):
        scores = np.log(popularity) + rng.gumbel(size=num_items)
        first_key = user * num_items
        start, end = np.searchsorted(keys, [first_key, first_key + num_items])
        scores[keys[start:end] - first_key] = -np.inf
        best = np.argpartition(-scores, missing[user])[: missing[user]]
        more.append(first_key + best)
    return np.concatenate(more)


def _stars(
    rng: Generator, users: Array, items: Array, num_users: int, num_items: int
) -> Array:
    """Returns float32 ratings `[ratings]` in half stars from 1 to 5."""
    values = _NOISE * rng.standard_normal(len(users), np.float32)
    values += _MEAN
    user_biases = _USER_SPREAD * rng.standard_normal(num_users, np.float32)
    item_biases = _ITEM_SPREAD * rng.standard_normal(num_items, np.float32)
    values += user_biases[users]
    values += item_biases[items]
    scale = np.float32(_PREFERENCE / np.sqrt(_RANK))
    for _ in range(_RANK):
        user_factor = scale * rng.standard_normal(num_users, np.float32)
        item_factor = rng.standard_normal(num_items, np.float32)
        values += user_factor[users] * item_factor[items]
    np.rint(values / _STEP, out=values)
    values *= _STEP
    return np.clip(values, _LOWEST, _HIGHEST, out=values)
