"""Generated ratings with the distributions of MovieLens."""

import numpy as np
from numpy import ndarray as Array
from numpy.random import Generator

from kerasmgpu.recipes.datasets.ratings import Ratings

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
_ROUNDS = 8


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
    for _ in range(_ROUNDS):
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
