"""Generated reviews whose ratings depend on both texts."""

import numpy as np

from kerasmgpu.recipes.datasets.reviews import Collector, Reviews

# An aspect that users may care about, and the words for items with and without
# it. Users name their aspect; all reviews name what an item has or lacks.
_ASPECTS = (
    ("story", "gripping", "tedious"),
    ("music", "tuneful", "shrill"),
    ("humour", "hilarious", "unfunny"),
    ("pictures", "beautiful", "drab"),
)
_FILLERS = tuple("the a it was and this of to in i is with that on for".split())

_MEAN, _LOWEST, _HIGHEST = 3.2, 1, 5
# Stars that an item with (or without) the user's aspect gains (or loses); the
# standard deviations of the biases of users and items, and of the noise.
_TASTE, _USER_SPREAD, _ITEM_SPREAD, _NOISE = 1.2, 0.2, 0.2, 0.3


def generate(
    num_users: int = 500,
    num_items: int = 100,
    num_reviews: int = 8000,
    seed: int = 0,
) -> Reviews:
    """Generates `Reviews` to learn from.

    Each user cares about one of four aspects, and each item has or lacks each
    of them. The rating is high where the item has the user's aspect, which
    takes the other reviews of both to know; averages say little.
    """
    rng = np.random.default_rng(seed)
    cares = rng.integers(len(_ASPECTS), size=num_users)
    has = rng.integers(2, size=(num_items, len(_ASPECTS)))
    user_biases = _USER_SPREAD * rng.standard_normal(num_users)
    item_biases = _ITEM_SPREAD * rng.standard_normal(num_items)
    pairs = rng.choice(num_users * num_items, num_reviews, replace=False)
    collected = Collector()
    for pair in pairs:
        user, item = divmod(int(pair), num_items)
        agrees = 1 if has[item, cares[user]] else -1
        stars = _MEAN + agrees * _TASTE + user_biases[user] + item_biases[item]
        stars += _NOISE * rng.standard_normal()
        rating = int(np.clip(np.rint(stars), _LOWEST, _HIGHEST))
        text = _text(rng, cares[user], has[item])
        collected.add(f"user{user}", f"item{item}", rating, text)
    return collected.reviews("generated, not real", f", seed {seed}")


def _text(rng: np.random.Generator, cares: int, has: np.ndarray) -> str:
    """Eight words: the user's aspect, two of the item's, and fillers."""
    aspect = _ASPECTS[cares][0]
    seen = rng.integers(len(_ASPECTS), size=2)
    qualities = [_ASPECTS[s][1] if has[s] else _ASPECTS[s][2] for s in seen]
    fillers = rng.choice(_FILLERS, size=5)
    return " ".join(rng.permutation([aspect, *qualities, *fillers]))
