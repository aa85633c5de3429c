"""Reviews of items by users with their ratings, read or generated."""

import array
import dataclasses
import gzip
import json
import pathlib
import re
import zlib

import numpy as np

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import row_order
from kerasmgpu.recipes.datasets.ratings import Ratings

# A word: letters and digits of any script, and an apostrophe inside.
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")

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


# Arrays have no single truth value, so the generated `==` would only raise.
@dataclasses.dataclass(frozen=True, eq=False)
class Reviews:
    """Reviews whose texts are numbers of words.

    Review `k` is what user `users[k]` wrote about item `items[k]`, with the
    rating `ratings[k]` on the file's own scale; its words are
    `tokens[starts[k]:starts[k + 1]]`, numbers of `words`. `starts` is int64,
    `ratings` float32, the others int32.
    """

    users: np.ndarray
    items: np.ndarray
    ratings: np.ndarray
    tokens: np.ndarray
    starts: np.ndarray
    words: list[str]
    num_users: int
    num_items: int
    description: str

    def __len__(self) -> int:
        return len(self.ratings)

    def split(
        self, held_out: float = 0.1, seed: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the training and held-out reviews, both increasing."""
        is_held_out = row_order.held_out_rows(
            len(self), held_out, seed, "reviews", self.description
        )
        return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)

    def as_ratings(self, rows: np.ndarray) -> Ratings:
        """The `Ratings` of some reviews, without their texts."""
        return Ratings(
            self.users[rows],
            self.items[rows],
            self.ratings[rows],
            np.arange(self.num_users),
            np.arange(self.num_items),
            self.description,
        )


def load(path: str | pathlib.Path) -> Reviews:
    """Reads `Reviews` as JSON lines, the form of the Amazon review data.

    One object per line with `reviewerID`, `asin` (the item) and `reviewText`,
    all strings, and `overall`, a number above 0. Other keys are ignored. Lines
    that are no reviews are skipped and counted. The file may be compressed by
    gzip, which is recognised by its content.
    """
    path = pathlib.Path(path)
    collected = Collector()
    first_malformed, malformed = "", 0
    try:
        with path.open("rb") as file:
            is_compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            lines = gzip.open(file) if is_compressed else file
            for number, line in enumerate(lines, 1):
                try:
                    collected.add(*_parse(line))
                except ValueError as error:
                    malformed += 1
                    first_malformed = (
                        first_malformed or f"line {number}: {error}"
                    )
    # A damaged gzip file ends early, or its checksum is wrong.
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"The reviews can't be read. Received: {path} "
            f"({getattr(error, 'strerror', None) or error}); give a file of "
            "JSON lines, plain or compressed by gzip"
        ) from error
    if not len(collected):
        raise InputError(
            f"Expected JSON lines with reviewerID, asin, reviewText and "
            f"overall. Received: {path}, which has no review"
            + (f" ({first_malformed})" if first_malformed else " (it is empty)")
        )
    note = (
        f"; {malformed:,} malformed line(s) left out, first {first_malformed}"
    )
    return collected.reviews(path.name, note if malformed else "")


class Collector:
    """Collects reviews one by one and numbers users, items and words."""

    def __init__(self) -> None:
        self._users: dict[str, int] = {}
        self._items: dict[str, int] = {}
        self._words: dict[str, int] = {}
        # Compact while they grow: 4 or 8 bytes an entry.
        self._columns = array.array("i"), array.array("i"), array.array("f")
        self._tokens, self._starts = array.array("i"), array.array("q", [0])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def add(self, user: str, item: str, rating: float, text: str) -> None:
        users, items, ratings = self._columns
        users.append(self._users.setdefault(user, len(self._users)))
        items.append(self._items.setdefault(item, len(self._items)))
        ratings.append(rating)
        words, found = self._words, _WORD.findall(text.lower())
        self._tokens.extend([words.setdefault(w, len(words)) for w in found])
        self._starts.append(len(self._tokens))

    def reviews(self, source: str, note: str = "") -> Reviews:
        """The collected `Reviews`; `source` and `note` describe them."""
        users, items, ratings = map(np.array, self._columns)
        return Reviews(
            users,
            items,
            ratings,
            np.array(self._tokens),
            np.array(self._starts),
            list(self._words),
            len(self._users),
            len(self._items),
            f"{source}: {len(self):,} reviews of {len(self._items):,} items by "
            f"{len(self._users):,} users{note}",
        )


def _parse(line: bytes) -> tuple[str, str, float, str]:
    """User, item, rating and text of a line; raises `ValueError`."""
    try:
        review = json.loads(line)
    except ValueError:
        raise ValueError("not JSON") from None
    if not isinstance(review, dict):
        raise ValueError("not a JSON object")
    for key in ("reviewerID", "asin", "reviewText"):
        if not isinstance(review.get(key), str):
            raise ValueError(f"{key} is not a string")
    rating = review.get("overall")
    if (
        isinstance(rating, bool)
        or not isinstance(rating, (int, float))
        or not 0 < rating <= 100
    ):
        raise ValueError("overall is not a number above 0 and up to 100")
    return review["reviewerID"], review["asin"], rating, review["reviewText"]


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
