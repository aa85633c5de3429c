"""Packs what collectives send, and unpacks what they receive.

Small values of one type are sent as one vector. Parts of different sizes are
padded to the longest.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, cast

import tensorflow as tf

from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.ir.sent_types import (
    BYTES_PER_PACK,
    BYTES_PER_WORD,
    LARGE,
)
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.references import Reference

# Vectors of several values ----------------------------------------------------


def packs_of_type(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Groups tensors of one type that are reduced as one vector.

    Returns:
        Lists of indices of tensors. A large tensor is alone in its list, and so
        is one of dynamic shape.
    """
    packs: list[list[int]] = []
    last: dict[tf.DType, tuple[list[int], float]] = {}  # With its bytes.
    for number, tensor in enumerate(tensors):
        size = tensor.num_bytes
        if LARGE <= size < float("inf"):
            packs.append([number])
            continue
        pack, num_bytes = last.get(tensor.dtype, (None, 0))
        if pack is None or num_bytes + size > BYTES_PER_PACK:
            pack, num_bytes = [], 0
            packs.append(pack)
        pack.append(number)
        last[tensor.dtype] = pack, num_bytes + size
    return packs


def packs_of_shape(tensors: Sequence[Tensor], largest: int) -> list[list[int]]:
    """Groups small tensors of one shape, which are summed as one.

    Args:
        largest: Bytes up to which a tensor is small.

    Returns:
        Lists of indices of tensors; a large tensor is alone in its list.
    """
    groups: dict[Hashable, list[int]] = {}
    for number, tensor in enumerate(tensors):
        is_small = tensor.num_bytes <= largest
        key: Hashable = (tensor.dtype, tensor.shape) if is_small else number
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def num_elements(tensors: Sequence[Tensor]) -> int | None:
    """Returns the total of elements; `None` if a shape is empty or dynamic."""
    if not all(0 < tensor.num_bytes < float("inf") for tensor in tensors):
        return None
    return sum(cast(int, tensor.num_elements) for tensor in tensors)


def packed(
    build: Function, values: Sequence[Reference], place: int
) -> tuple[Reference, Callable[[Reference], list[Reference]]]:
    """Packs values of one type into one vector; a single value stays as it is.

    Returns:
        Reference to the vector, and a function that takes one like it apart.
    """
    if len(values) == 1:
        return values[0], lambda single: [single]
    shapes = list(map(build.sizes.shape, values))
    vector = build.concat([build.flat(one, place) for one in values], 0, place)

    def unpack(vector: Reference) -> list[Reference]:
        lengths = list(map(build.sizes.product, shapes))
        parts = unpacked(build, vector, lengths)
        return list(map(build.reshape, parts, shapes))

    return vector, unpack


def unpacked(
    build: Function,
    pack: Reference,
    lengths: Sequence[int] | Sequence[Reference],
) -> list[Reference]:
    """Copies pieces of some lengths, `[1, length]`, out of a vector.

    Pieces along the first axis would share the pack's buffer. An optimizer
    computes a variable's new value in place of the last piece that is left, and
    the variable would keep the whole pack alive. A single piece is the vector
    itself.
    """
    if len(lengths) == 1:
        return [pack]
    row = build.op("ExpandDims", [pack, build.constant(0)])[0]
    return split(build, row, 1, lengths)


def split(
    build: Function,
    reference: Reference,
    axis: int,
    sizes: Sequence[int] | Sequence[Reference],
    place: int | None = None,
) -> list[Reference]:
    """Splits a value along an axis, unless there is only one piece.

    Args:
        sizes: Sizes of the pieces: integers, or references to scalars.
        place: Place of the operation; by default where the value is.
    """
    if len(sizes) == 1:
        return [reference]
    if isinstance(sizes[0], Reference):
        vector = build.sizes.packed(cast(Sequence[Reference], sizes))
    else:
        vector = build.constant(sizes)
    inputs = [reference, vector, build.constant(axis)]
    return build.op("SplitV", inputs, place, num_split=len(sizes))


def padded(
    build: Function,
    reference: Reference,
    paddings: Sequence[Reference],
    place: int | None = None,
) -> Reference:
    """Pads a value by zeros; `paddings` are two per axis: before and after."""
    shape = build.constant([len(paddings) // 2, 2])
    matrix = build.reshape(build.sizes.packed(paddings), shape)
    return build.op("Pad", [reference, matrix], place)[0]


# Parts of a sharded value -----------------------------------------------------


class Parts(NamedTuple):
    """The parts that the members of a collective have of a sharded value.

    Attributes:
        sizes: Each member's elements along the sharded axis.
    """

    one: Value
    sizes: Sequence[int]

    @property
    def longest(self) -> int:
        """Number of elements of the longest part."""
        return math.prod(self._shape(max(self.sizes)))

    def _shape(self, size: int) -> tuple[int, ...]:
        """Returns the value's static shape, with that size of the sharded axis."""
        axis = self.one.sharded.axis
        shape = cast(tuple[int, ...], self.one.tensor.shape)
        return (*shape[:axis], size, *shape[axis + 1 :])

    @property
    def _is_even(self) -> bool:
        """Whether parts, one behind the other, are the whole."""
        return len(set(self.sizes)) == 1 and self.one.sharded.axis == 0

    # All-gather

    @property
    def _are_bytes(self) -> bool:
        """Whether elements are sent as words of several."""
        return self.one.tensor.dtype.size == 1

    @property
    def num_sent(self) -> int:
        """Number of elements, or of words, of what `to_send` returns."""
        number = self.longest
        return -(-number // BYTES_PER_WORD) if self._are_bytes else number

    def to_send(
        self,
        build: Function,
        part: Reference,
        own: int,
        target: tf.DType,
        place: int,
    ) -> Reference:
        """Returns a member's part as an all-gather sends it.

        It has a first axis for the member, unless the parts are even.

        Args:
            own: The member.
            target: The type to send.
        """
        if self._are_bytes:
            return _words(
                build,
                self._stacked(build, part, own, place),
                self.longest,
                place,
            )
        part = build.cast(part, target, place)
        return part if self._is_even else self._stacked(build, part, own, place)

    def joined(self, build: Function, gathered: Reference) -> Reference:
        """Returns the whole value of what an all-gather of `to_send` returns."""
        axis, dtype = self.one.sharded.axis, self.one.tensor.dtype
        if self._are_bytes:
            shape = (-1, *self._shape(max(self.sizes)))
            gathered = _bytes(build, gathered, dtype, shape)
        if self._are_bytes or not self._is_even:
            gathered = _unstacked(build, gathered, axis, self.sizes)
        return build.cast(gathered, dtype)

    def _stacked(
        self, build: Function, part: Reference, own: int, place: int
    ) -> Reference:
        """Pads a part to the longest along its axis, and adds a first axis."""
        missing = max(self.sizes) - self.sizes[own]
        if missing:
            paddings = [build.sizes.scalar(0)] * (
                2 * len(self.one.tensor.shape)
            )
            paddings[2 * self.one.sharded.axis + 1] = build.sizes.scalar(
                missing
            )
            part = padded(build, part, paddings, place)
        return build.op("ExpandDims", [part, build.constant(0)], place)[0]

    # All-to-all

    def rows_to_send(
        self, build: Function, whole: Reference, place: int
    ) -> Reference:
        """Returns a matrix with a row per member: its part, flat and padded."""
        if self._is_even:
            shape = build.constant([len(self.sizes), self.longest])
            return build.reshape(whole, shape, place)
        rows = []
        axis = self.one.sharded.axis
        pieces = split(build, whole, axis, self.sizes, place)
        for piece, size in zip(pieces, self.sizes):
            flat = build.flat(piece)
            missing = self.longest - math.prod(self._shape(size))
            if missing:
                around = list(map(build.sizes.scalar, (0, missing)))
                flat = padded(build, flat, around)
            rows.append(flat)
        return build.op("Pack", rows)[0]

    def own_rows(
        self, build: Function, vector: Reference, own: int
    ) -> Reference:
        """Returns a member's rows, cut out of their padded vector."""
        shape = self._shape(self.sizes[own])
        elements = math.prod(shape)
        if elements < self.longest:
            bounds = [build.constant([n]) for n in (0, elements, 1)]
            vector = build.strided_slice(build.flat(vector), bounds)
        return build.reshape(vector, build.constant(shape))


def _words(
    build: Function, value: Reference, elements: int, place: int
) -> Reference:
    """Returns the bytes of a part `[1, …]` as integers `[1, words]`."""
    value = build.reshape(value, build.constant([1, elements]), place)
    missing = -elements % BYTES_PER_WORD
    if missing:
        paddings = list(map(build.sizes.scalar, (0, 0, 0, missing)))
        value = padded(build, value, paddings, place)
    shape = build.constant([1, -1, BYTES_PER_WORD])
    value = build.reshape(value, shape, place)
    return build.op("Bitcast", [value], place, type=tf.int32)[0]


def _bytes(
    build: Function, words: Reference, dtype: tf.DType, stacked: Sequence[int]
) -> Reference:
    """Undoes `_words` for the parts of all members.

    Args:
        words: Reference to integers `[members, words]`.
        stacked: Shape of the parts, padded to one shape, with a first axis.
    """
    (value,) = build.op("Bitcast", [words], type=dtype)
    elements = math.prod(stacked[1:])
    missing = -elements % BYTES_PER_WORD
    flat = build.constant([-1, elements + missing])
    value = build.reshape(value, flat)
    if missing:
        value = split(build, value, 1, [elements, missing])[0]
    return build.reshape(value, build.constant(stacked))


def _unstacked(
    build: Function, stack: Reference, axis: int, sizes: Sequence[int]
) -> Reference:
    """Concatenates a stack of padded parts, without the padding."""
    parts = [
        split(build, part, axis, [size, max(sizes) - size])[0]
        if size < max(sizes)
        else part
        for part, size in zip(
            build.op("Unpack", [stack], num=len(sizes)), sizes
        )
    ]
    return build.concat(parts, axis)
