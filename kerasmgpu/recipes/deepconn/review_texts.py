"""The texts that predict a rating, put together batch by batch.

A user's text is the user's training reviews one after the other, an item's
likewise. The review that belongs to the rating under test must be in neither;
it is cut out when the batch is made, so that one copy of the words per side
serves all pairs.
"""

import numpy as np
import tensorflow as tf

from kerasmgpu.recipes.deepconn.review_vocabulary import PADDING


class ReviewTexts:
    """Texts of users and items, without the reviews of the pair under test.

    The user's side has what the user wrote on other items, the item's side
    what other users wrote on the item, of the training reviews only. A text
    longer than `words` is cut, a shorter one is padded with `PADDING` (0).

    Args:
        reviews: `reviews.Reviews`.
        tokens: int32 array `[words in all]`, the words of the reviews as
            numbers of a vocabulary; see `review_vocabulary.Vocabulary.encode`.
        train: int64 array, numbers of the reviews that texts are made of.
        words: Number of words of a text.

    Example:

    ```python
    train, held_out = reviews.split()
    vocabulary = Vocabulary.fit(reviews, train)
    texts = ReviewTexts(reviews, vocabulary.encode(reviews), train, words=800)
    user_texts, item_texts = texts.take(held_out[:32])  # both [32, 800]
    ```
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
        """Texts of the users and the items of some reviews.

        Args:
            rows: int64 tensor or array `[rows]`, numbers of reviews. Works
                inside of `tf.data` and `tf.function`.

        Returns:
            Two int32 tensors `[rows, words]`: user texts and item texts.
        """
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
