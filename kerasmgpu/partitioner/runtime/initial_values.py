"""Initial values of sharded variables, of which each part is made by itself.

Initializers return a `ValueInParts` instead of a tensor inside of `in_parts()`.
TensorFlow's stateless random operations compute each group of elements from the
key of the seed and a counter, which the number of the group is added to: any
range of elements can be drawn alone, with the bits of the whole draw. Checked on
TensorFlow 2.18 and 2.21.
"""

import contextlib
import copy
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

Box: TypeAlias = tuple[slice, ...]
"""Place of a part in a whole value: a range of each axis."""

_MOST_BYTES = 4 << 20
"""Most bytes that are drawn at a time; of parts that are cut across rows, the
rows are drawn whole."""

_PHILOX = 1
"""TensorFlow's number of the algorithm that CPUs and GPUs draw with."""

_thread = threading.local()


@contextlib.contextmanager
def in_parts() -> Iterator[None]:
    """Context in which initializers may return a `ValueInParts`."""
    before, _thread.asks = asks_for_parts(), True
    try:
        yield
    finally:
        _thread.asks = before


def asks_for_parts() -> bool:
    """Whether this thread is inside `in_parts`."""
    return getattr(_thread, "asks", False)


class ValueInParts:
    """A value whose parts are made one by one.

    Args:
        state: Small tensor that determines all elements.
        shape: Shape of the value, without unknown sizes.
    """

    def __init__(
        self, state: tf.Tensor, shape: Sequence[int], dtype: Any
    ) -> None:
        self.state = state
        self.shape = tf.TensorShape(shape)
        self.dtype = tf.as_dtype(dtype)

    def of(self, state: tf.Tensor) -> "ValueInParts":
        """Returns the value that another state determines."""
        other = copy.copy(self)
        other.state = state
        return other

    def part(self, box: Box) -> tf.Tensor:
        """Returns the elements in a box, made on the current device."""
        raise NotImplementedError

    def whole(self) -> tf.Tensor:
        """Returns the whole value, made on the current device."""
        return self.part(tuple(slice(0, size) for size in self.shape))


class Filled(ValueInParts):
    """A value all of whose elements are equal to its state, a scalar."""

    def part(self, box: Box) -> tf.Tensor:
        return tf.fill(_sizes(box), self.state)


DISTRIBUTIONS = {
    "uniform": (tf.raw_ops.StatelessRandomUniformV2, False),
    "normal": (tf.raw_ops.StatelessRandomNormalV2, False),
    "truncated_normal": (tf.raw_ops.StatelessTruncatedNormalV2, True),
}
"""Maps a distribution to TensorFlow's operation, and whether that redraws."""

_STEP_OF_REDRAWING = 256
"""Numbers of the counter that a redrawing operation reserves for an element,
times four, which are drawn with one number."""


class Drawn(ValueInParts):
    """A random value, each element `drawn * scale + offset`.

    Args:
        distribution: Key of `DISTRIBUTIONS`.
        state: Tensor of two integers, the seed.
        dtype: Its floating-point type.
        scale, offset: Scalars that TensorFlow converts to `dtype`.
    """

    def __init__(
        self,
        distribution: str,
        state: tf.Tensor,
        shape: Sequence[int],
        dtype: Any,
        scale: Any,
        offset: Any,
    ) -> None:
        super().__init__(state, shape, dtype)
        self._distribution = distribution
        self._scale, self._offset = scale, offset

    def part(self, box: Box) -> tf.Tensor:
        if 0 in _sizes(box):
            return tf.zeros(_sizes(box), self.dtype)
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=self.state)
        low, high = map(int, counter.numpy())
        return self._block(key, (high << 64) + low, 0, list(self.shape), box)

    def _block(
        self,
        key: tf.Tensor,
        counter: int,
        first: int,
        shape: list[int],
        box: Box,
    ) -> tf.Tensor:
        """Returns a box of a block of elements that follow one another."""

        each = math.prod(shape[1:])  # Elements of a row.
        most = _MOST_BYTES // self.dtype.size
        if not shape:
            return tf.reshape(self._flat(key, counter, first, 1), [])
        rows, columns, others = box[0], box[1:], shape[1:]
        if each > most:
            return tf.stack(
                [
                    self._block(
                        key, counter, first + row * each, others, columns
                    )
                    for row in range(rows.start, rows.stop)
                ]
            )
        pieces, own = [], (slice(None), *columns)
        for row in range(rows.start, rows.stop, most // each):
            number = min(most // each, rows.stop - row)
            flat = self._flat(key, counter, first + row * each, number * each)
            pieces.append(tf.reshape(flat, [number, *others])[own])
        return tf.concat(pieces, 0)

    def _flat(
        self, key: tf.Tensor, counter: int, first: int, number: int
    ) -> tf.Tensor:
        """Draws elements `first` to `first + number` of the whole value."""
        draw, redraws = DISTRIBUTIONS[self._distribution]
        group = 2 if self.dtype == tf.float64 else 4
        skipped = first % group
        step = group * _STEP_OF_REDRAWING // 4 if redraws else 1
        counter = (counter + first // group * step) % (1 << 128)
        words = [counter % (1 << 64), counter >> 64]
        values = draw(
            shape=[skipped + number],
            key=key,
            counter=tf.constant(words, tf.uint64),
            alg=_PHILOX,
            dtype=self.dtype,
        )[skipped:]
        return values * self._scale + self._offset


def _sizes(box: Box) -> list[int]:
    return [one.stop - one.start for one in box]
