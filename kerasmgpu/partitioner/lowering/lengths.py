"""Pads values of dynamic shape to a few lengths for collectives.

TensorFlow caches the shape of a collective by its keys, so each length has an
instance key of its own.
"""

from collections.abc import Sequence

import tensorflow as tf

from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.step.references import Reference

_MOST_COLLECTIVES = 1 << 16
"""Upper bound of the number of collectives of a function."""

_LENGTHS = sorted({max(1, (8 + n % 8) << n // 8 >> 3) for n in range(8 * 31)})
"""Lengths that vectors of dynamic length are padded to: by less than an eighth."""


def padded_length(
    build: Function, length: Reference, instance: int
) -> tuple[Reference, Reference]:
    """Rounds a length up to one of `_LENGTHS`, when the function runs.

    Args:
        instance: Instance key of the collective.

    Returns:
        References to the new length, and to its own instance key.
    """
    number, lengths = build.sizes, build.constant(_LENGTHS)
    is_less = build.cast(number.op("Less", lengths, length), tf.int32)
    index = reduced(build, "Sum", is_less)
    others = number.times(index, number.scalar(_MOST_COLLECTIVES))
    own_instance = number.plus(number.scalar(instance), others)
    return number.entry_at(lengths, index), own_instance


def entry_of(
    build: Function, matrix: Reference, row: int, column: int
) -> Reference:
    """Returns an entry of a matrix of sizes, at fixed indices."""
    bounds = [row, column], [row + 1, column + 1], [1, 1]
    return build.strided_slice(
        matrix, list(map(build.constant, bounds)), shrink_axis_mask=3
    )


def product(build: Function, vector: Reference) -> Reference:
    """Returns the product of a vector of sizes."""
    return reduced(build, "Prod", vector)


def reduced(build: Function, type: str, vector: Reference) -> Reference:
    """Reduces a vector of sizes to a scalar, by an operation such as `Sum`."""
    return build.sizes.op(type, vector, build.sizes.scalar(0))


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
