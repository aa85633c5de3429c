"""Agreement of a job's workers on what each of them plans and writes."""

import zlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from kerasmgpu.job import workers


class Agreement:
    """Compares numbers of the workers of a job; see `replicas.Agreement`.

    Every method is a collective: all workers must call it, in the same order.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy

    def shapes_of_first(
        self, shapes: Sequence[Sequence[int | None]]
    ) -> Sequence[Sequence[int | None]]:
        """Returns the first worker's shapes of a batch."""
        flat = [-1 if size is None else size for one in shapes for size in one]
        if not flat:
            return shapes
        numbers = iter(self._of_all(flat)[0])
        agreed = [[int(next(numbers)) for _ in one] for one in shapes]
        return [[None if n < 0 else n for n in one] for one in agreed]

    def common(self, numbers: Sequence[int]) -> set[int]:
        """Returns the numbers, at least 0, that all workers pass."""
        table = self._padded_table(numbers)
        return set.intersection(*(set(map(int, row)) for row in table)) - {-1}

    def first_difference(self, numbers: Sequence[int]) -> int | None:
        """Returns the first index at which workers differ; `None` without one.

        Args:
            numbers: Integers from 0 to 2^53, which a float64 holds exactly.
        """
        checksum = zlib.crc32(repr(list(numbers)).encode())
        summaries = self._of_all([len(numbers), checksum])
        if np.all(summaries == summaries[0]):
            return None
        table = self._padded_table(numbers)
        return int(np.argmax(np.any(table != table[0], 0)))

    def _padded_table(self, numbers: Sequence[int]) -> np.ndarray:
        """All-gathers lists of any lengths, padded with -1: a row per worker."""
        longest = int(self._of_all([len(numbers)]).max())
        padding = [-1] * (longest + 1 - len(numbers))  # At least one.
        return self._of_all([*numbers, *padding])

    def _of_all(self, numbers: Sequence[float]) -> np.ndarray:
        with tf.init_scope():
            return workers.gather(self._strategy, numbers)
