"""Lengths of what collectives send, where values decide them.

TensorFlow caches the shape of a collective by its keys: values are padded to one
of a few lengths, each with an instance key of its own.
"""

from collections.abc import Sequence

import tensorflow as tf

from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.step.places import HOST

_MOST_COLLECTIVES = 1 << 16
"""Upper bound of the collectives of a function."""

_LENGTHS = sorted({max(1, (8 + n % 8) << n // 8 >> 3) for n in range(8 * 31)})
"""Lengths that vectors of dynamic length are padded to."""


def padded_length(build: Function, length: str) -> tuple[str, str]:
    """The least of `_LENGTHS` that isn't less than a length, and its index."""
    lengths = build.constant(_LENGTHS, tf.int32, HOST)
    is_less = build.sizes.op("Less", lengths, length)
    is_less = build.cast(is_less, tf.bool, tf.int32, HOST)
    index = reduced(build, "Sum", is_less)
    return build.sizes.entry_at(lengths, index), index


def instance_of(build: Function, instance: int, index: str) -> str:
    """The instance key of a collective for values of a length of `_LENGTHS`."""
    first = build.sizes.scalar(instance)
    each = build.sizes.scalar(_MOST_COLLECTIVES)
    return build.sizes.plus(first, build.sizes.times(index, each))


def entry_of(build: Function, matrix: str, row: int, column: int) -> str:
    """An entry of a matrix of sizes."""
    begin, end, strides = (
        build.constant(bounds, tf.int32, HOST)
        for bounds in ([row, column], [row + 1, column + 1], [1, 1])
    )
    return build.strided_slice(
        matrix, begin, end, strides, tf.int32, HOST, shrink_axis_mask=3
    )


def product(build: Function, vector: str) -> str:
    """The product of a vector of sizes."""
    return reduced(build, "Prod", vector)


def reduced(build: Function, type: str, vector: str) -> str:
    """A vector of sizes, reduced by an operation."""
    attributes = {"T": tf.int32, "Tidx": tf.int32, "keep_dims": False}
    axis = build.sizes.scalar(0)
    return build.op(type, [vector, axis], attributes, HOST)[0]


def padded(
    build: Function,
    reference: str,
    paddings: Sequence[str],
    dtype: tf.DType,
    place: int,
) -> str:
    """A value padded by zeros; `paddings` has two scalars per axis."""
    rank = len(paddings) // 2
    matrix = build.reshape(
        build.sizes.packed(paddings),
        build.constant([rank, 2], tf.int32, HOST),
        tf.int32,
        HOST,
    )
    attributes = {"T": dtype, "Tpaddings": tf.int32}
    return build.op("Pad", [reference, matrix], attributes, place)[0]
