"""The texts that predict a rating, built batch by batch.

A user's text is the concatenation of the user's training reviews, an item's
likewise. The review of the rating to predict is in neither: it is cut out of
the batch, so that one copy of the words per side serves all pairs.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy import ndarray as Array
from tensorflow import Tensor

from kerasmgpu.recipes.datasets import row_order
from kerasmgpu.recipes.datasets.reviews import Reviews

PADDING = 0
"""Number that pads a text."""

UNKNOWN = 1
"""Number of all rare words."""


def vocabulary(
    reviews: Reviews, train: Array, max_words: int
) -> tuple[int, Array]:
    """Numbers the words by their frequency in the training reviews.

    Keeps the `max_words` most frequent; ties go to the first in the reviews.
    Returns the size of the vocabulary, with `PADDING` and `UNKNOWN`, and the
    words of all reviews as an int32 array of numbers: 2 is the most frequent.
    """
    is_train = np.zeros(len(reviews), bool)
    is_train[train] = True
    of_train = np.repeat(is_train, np.diff(reviews.starts))
    counts = np.bincount(reviews.tokens[of_train], minlength=len(reviews.words))
    best = np.argsort(-counts, kind="stable")[:max_words]
    best = best[counts[best] > 0]
    numbers = np.full(len(reviews.words), UNKNOWN, np.int32)
    numbers[best] = np.arange(len(best)) + UNKNOWN + 1
    return len(best) + UNKNOWN + 1, numbers[reviews.tokens]


class ReviewTexts:
    """Texts of users and items, without the reviews of the pair to predict.

    The user's text has the user's training reviews of other items, the item's
    text those of the item by other users. A text longer than `words` is cut, a
    shorter one is padded with `PADDING`. `tokens` is the array that `vocabulary`
    returns; `train` are the indices of the training reviews.
    """

    def __init__(
        self, reviews: Reviews, tokens: Array, train: Array, words: int
    ) -> None:
        self.words = words
        users, items = reviews.users, reviews.items
        self._pairs = tf.constant(np.stack([users, items], axis=1))
        self._of_users = _Side(reviews, tokens, train, "user")
        self._of_items = _Side(reviews, tokens, train, "item")

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """User texts and item texts of reviews, int32 `[rows, words]` each."""
        users, items = tf.unstack(tf.gather(self._pairs, rows), axis=1)
        return (
            self._of_users.texts(users, items, self.words),
            self._of_items.texts(items, users, self.words),
        )


class _Side:
    """Training tokens, sorted by user, then item (or item, then user).

    The first of the two is the owner. All reviews of a pair are neighbours,
    so that one cut removes them.
    """

    def __init__(
        self, reviews: Reviews, tokens: Array, train: Array, owner: str
    ) -> None:
        owners, others = reviews.users[train], reviews.items[train]
        self._num_others = reviews.num_items
        if owner == "item":
            owners, others = others, owners
            self._num_others = reviews.num_users
        keys = owners.astype(np.int64) * self._num_others + others
        # Stable: reviews of a pair stay in the order of the file.
        order = np.argsort(keys, kind="stable")
        chosen = train[order]
        lengths = np.diff(reviews.starts)[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        # Word j of the k-th review in the new order comes from here.
        shift = np.repeat(reviews.starts[chosen] - starts[:-1], lengths)
        words = tokens[np.arange(starts[-1]) + shift]
        self._keys = tf.constant(keys[order])
        self._starts = tf.constant(starts)
        # One more, so that an empty text can be gathered.
        self._words = tf.constant(np.append(words, np.int32(PADDING)))

    def texts(self, owners: Tensor, others: Tensor, words: int) -> Tensor:
        """The owners' texts without the pairs' reviews, int32 `[rows, words]`."""
        first_key = tf.cast(owners, tf.int64) * self._num_others
        own_key = first_key + tf.cast(others, tf.int64)
        end_key = first_key + self._num_others
        start, own_start, own_end, end = (
            self._word_at(key)[:, None]
            for key in (first_key, own_key, own_key + 1, end_key)
        )
        places = start + tf.range(words, dtype=tf.int64)
        # After the cut the text continues behind the pair's reviews.
        is_behind = tf.cast(places >= own_start, tf.int64)
        places += is_behind * (own_end - own_start)
        last = tf.size(self._words, tf.int64) - 1
        found = tf.gather(self._words, tf.minimum(places, last))
        return tf.where(places < end, found, PADDING)

    def _word_at(self, keys: Tensor) -> Tensor:
        """First word of the first review at or after a key."""
        place = tf.searchsorted(self._keys, keys, out_type=tf.int64)
        return tf.gather(self._starts, place)


def training_and_validation(
    texts: ReviewTexts,
    ratings: Array,
    train: Array,
    held_out: Array,
    global_batch_size: int,
    seed: int,
    first_step: int = 0,
) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Makes the two data sets of a run: `({"user_text", "item_text"}, rating)`.

    `train` and `held_out` are indices of reviews. Training is endless,
    validation one pass. Texts are built on the CPU.
    """
    ratings, places = tf.constant(ratings[:, None]), tf.constant(train)

    def element(reviews: Tensor) -> Any:
        user_texts, item_texts = texts.take(reviews)
        inputs = {"user_text": user_texts, "item_text": item_texts}
        return inputs, tf.gather(ratings, reviews)

    order = row_order.batches(len(train), global_batch_size, seed, first_step)
    in_turn = tf.data.Dataset.from_tensor_slices(held_out)
    return (
        row_order.mapped(order, lambda rows: element(tf.gather(places, rows))),
        row_order.mapped(in_turn.batch(global_batch_size), element),
    )
