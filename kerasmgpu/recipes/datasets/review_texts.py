"""The texts that predict a rating, put together batch by batch.

A user's text is the user's training reviews one after the other, an item's
likewise. The review that belongs to the rating under test must be in neither;
it is cut out when the batch is made, so that one copy of the words per side
serves all pairs.
"""

import numpy as np
import tensorflow as tf

from kerasmgpu.recipes.datasets import row_order

PADDING = 0
"""Number that fills up a text behind its last word."""

UNKNOWN = 1
"""Number of all words that are too rare to know."""


def vocabulary(reviews, train, max_words):
    """Numbers the words by how often they occur in the training reviews.

    At most `max_words` are kept; where words are equally frequent, those that
    the reviews have first.

    Returns:
        The number of different numbers (`PADDING` and `UNKNOWN` are two), and
        an int32 array of the words of all reviews as numbers: 2 is the most
        frequent.
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
    """Texts of users and items, without the reviews of the pair under test.

    The user's side has what the user wrote on other items, the item's side
    what other users wrote on the item, of the training reviews only. A text
    longer than `words` is cut, a shorter one is padded with `PADDING` (0).

    Args:
        reviews: `reviews.Reviews`.
        tokens: int32 array `[words in all]`, of `vocabulary`.
        train: int64 array, numbers of the reviews that texts are made of.
        words: Number of words of a text.
    """

    def __init__(self, reviews, tokens, train, words):
        self.words = words
        self._pairs = tf.constant(
            np.stack([reviews.users, reviews.items], axis=1)
        )
        self._sides = [
            _Side(reviews, tokens, train, owners, others, num_others)
            for owners, others, num_others in (
                (reviews.users, reviews.items, reviews.num_items),
                (reviews.items, reviews.users, reviews.num_users),
            )
        ]

    def take(self, rows):
        """User texts and item texts of reviews, int32 `[rows, words]` each."""
        pairs = tf.gather(self._pairs, rows)
        users, items = pairs[:, 0], pairs[:, 1]
        of_users, of_items = self._sides
        return (
            of_users.texts(users, items, self.words),
            of_items.texts(items, users, self.words),
        )


class _Side:
    """The words of the training reviews, sorted by owner, then by the other.

    The owner is the user on the users' side and the item on the items' side.
    All reviews of a pair are neighbours then, also where a user reviewed an
    item twice, so that one cut takes them out.
    """

    def __init__(self, reviews, tokens, train, owners, others, num_others):
        self._num_others = num_others
        keys = owners[train].astype(np.int64) * num_others + others[train]
        # Stable: a user's reviews stay in the order of the file within a pair.
        order = np.argsort(keys, kind="stable")
        chosen = train[order]
        lengths = np.diff(reviews.starts)[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        # Word j of the k-th review in the new order comes from here.
        shift = np.repeat(reviews.starts[chosen] - starts[:-1], lengths)
        words = tokens[np.arange(starts[-1]) + shift]
        self._keys = tf.constant(keys[order])
        self._starts = tf.constant(starts)
        # One more, so that there is something to gather where nothing is left.
        self._words = tf.constant(np.append(words, np.int32(PADDING)))

    def texts(self, owners, others, words):
        """int32 tensor `[rows, words]`: the owners' texts without the pairs'."""
        first_key = tf.cast(owners, tf.int64) * self._num_others
        own_key = first_key + tf.cast(others, tf.int64)
        start, own_start, own_end, end = (
            self._word_at(key)[:, None]
            for key in (
                first_key,
                own_key,
                own_key + 1,
                first_key + self._num_others,
            )
        )
        places = start + tf.range(words, dtype=tf.int64)
        # Beyond the cut the text goes on behind the pair's own reviews.
        places = tf.where(
            places < own_start, places, places + (own_end - own_start)
        )
        found = tf.gather(
            self._words, tf.minimum(places, tf.size(self._words, tf.int64) - 1)
        )
        return tf.where(places < end, found, PADDING)

    def _word_at(self, keys):
        """Where the words of the first review at or after a key begin."""
        place = tf.searchsorted(self._keys, keys, out_type=tf.int64)
        return tf.gather(self._starts, place)


def training_and_validation(
    texts, ratings, train, held_out, global_batch_size, seed, first_step=0
):
    """Makes the two data sets of a run: `({"user_text", "item_text"}, rating)`.

    Texts are put together when they are asked for, on the CPU. `train` and
    `held_out` are numbers of reviews.

    Returns:
        Two `tf.data.Dataset`s: endless training batches, and one pass of
        validation batches.
    """
    ratings, places = tf.constant(ratings[:, None]), tf.constant(train)

    def element(reviews):
        user_texts, item_texts = texts.take(reviews)
        inputs = {"user_text": user_texts, "item_text": item_texts}
        return inputs, tf.gather(ratings, reviews)

    order = row_order.batches(len(train), global_batch_size, seed, first_step)
    in_turn = tf.data.Dataset.from_tensor_slices(held_out)
    return (
        row_order.mapped(order, lambda rows: element(tf.gather(places, rows))),
        row_order.mapped(in_turn.batch(global_batch_size), element),
    )
