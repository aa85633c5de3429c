"""The words that a model knows, by how often they occur in training."""

import dataclasses

import numpy as np

from kerasmgpu.errors import checked_integer

PADDING = 0
"""Number that fills up a text behind its last word."""

UNKNOWN = 1
"""Number of all words that the vocabulary doesn't have."""


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """The most frequent words; number 2 is the most frequent.

    Args:
        words: List of words, the most frequent first.
        numbers: int32 array: number here by the number in `Reviews.words`.
    """

    words: list
    numbers: np.ndarray

    @classmethod
    def fit(cls, reviews, train, max_words=20_000):
        """Counts the words of the training reviews.

        Args:
            reviews: `reviews.Reviews`.
            train: int64 array, numbers of the reviews to count in; what is
                held out stays unseen.
            max_words: Most words to keep, at least 1. Where words are equally
                frequent, those that the reviews have first. Defaults to
                `20_000`.

        Returns:
            A `Vocabulary`.

        Raises:
            InputError: If `max_words` is no integer of at least 1.
        """
        max_words = checked_integer(max_words, "max_words", minimum=1)
        is_train = np.zeros(len(reviews), bool)
        is_train[train] = True
        of_train = np.repeat(is_train, np.diff(reviews.starts))
        counts = np.bincount(
            reviews.tokens[of_train], minlength=len(reviews.words)
        )
        best = np.argsort(-counts, kind="stable")[:max_words]
        best = best[counts[best] > 0]
        numbers = np.full(len(reviews.words), UNKNOWN, np.int32)
        numbers[best] = np.arange(len(best)) + UNKNOWN + 1
        return cls([reviews.words[place] for place in best], numbers)

    @property
    def size(self):
        """How many numbers there are, with `PADDING` and `UNKNOWN`."""
        return len(self.words) + 2

    def encode(self, reviews):
        """The words of all reviews as numbers: int32 array `[words in all]`."""
        return self.numbers[reviews.tokens]
