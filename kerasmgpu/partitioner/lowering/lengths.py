"""Lengths of what collectives send, where values decide them.

TensorFlow caches the shape of a collective by its keys: values are padded to one
of a few lengths, each with an instance key of its own.
"""

from collections.abc import Sequence

import tensorflow as tf

from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.step.references import Reference

_MOST_COLLECTIVES = 1 << 16
"""Upper bound of the collectives of a function."""

_LENGTHS = sorted({max(1, (8 + n % 8) << n // 8 >> 3) for n in range(8 * 31)})
"""Lengths that vectors of dynamic length are padded to."""


def padded_length(
    build: Function, length: Reference, instance: int
) -> tuple[Reference, Reference]:
    """The least of `_LENGTHS` that isn't less than a length.

    Args:
        build: The `Function`.
        length: Reference to the length.
        instance: Instance key of the collective.

    Returns:
        References to it, and to its own instance key.
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
    """An entry of a matrix of sizes."""
    bounds = [row, column], [row + 1, column + 1], [1, 1]
    return build.strided_slice(
        matrix, list(map(build.constant, bounds)), shrink_axis_mask=3
    )


def product(build: Function, vector: Reference) -> Reference:
    """The product of a vector of sizes."""
    return reduced(build, "Prod", vector)


def reduced(build: Function, type: str, vector: Reference) -> Reference:
    """A vector of sizes, reduced by an operation."""
    return build.sizes.op(type, vector, build.sizes.scalar(0))


def padded(
    build: Function,
    reference: Reference,
    paddings: Sequence[Reference],
    place: int | None = None,
) -> Reference:
    """A value padded by zeros; `paddings` has two scalars per axis."""
    shape = build.constant([len(paddings) // 2, 2])
    matrix = build.reshape(build.sizes.packed(paddings), shape)
    return build.op("Pad", [reference, matrix], place)[0]
