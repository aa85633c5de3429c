"""Computes on the host which entries of a sparse input each replica gets."""

from collections.abc import Sequence
from typing import cast

import tensorflow as tf

from kerasmgpu.partitioner.ir.instructions import value
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.writing import Writer, branches
from kerasmgpu.partitioner.rules.kinds import REPLICATED, Rows
from kerasmgpu.partitioner.step.graph import Sparse, Tensor
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.references import Reference

_LAST = tf.int32.max
"""Upper bound of all row numbers."""


def sort_by_row(build: Function, leaf: Sparse) -> None:
    """Sorts a sparse input's entries by row, and replaces its references.

    Sorted entries, the common case, stay as they are; others are sorted by row
    and column (`tf.sparse.reorder`) when the function runs.
    """
    references = [
        build.given(tensor)[0]
        for tensor in (leaf.indices, leaf.values, leaf.dense_shape)
    ]
    numbers = _row_numbers(build, leaf.indices)
    zero, one, last = (build.constant([n]) for n in (0, 1, -1))
    next_numbers = build.strided_slice(numbers, [one, zero, one], end_mask=1)
    numbers = build.strided_slice(numbers, [zero, last, one])
    is_sorted = build.sizes.op("LessEqual", numbers, next_numbers)
    is_sorted = build.sizes.op("All", is_sorted, zero)
    attributes = branches(
        build.library, "kerasmgpu_entries", references, (_unchanged, _sorted)
    )
    outputs = build.op(
        "StatelessIf", [is_sorted, *references], HOST, **attributes
    )
    for tensor, reference in zip((leaf.indices, leaf.values), outputs):
        whole = value(tensor, REPLICATED, build.mesh.num_axes)
        build.hold(whole, build.same(reference))


def _unchanged(writer: Writer, inputs: Sequence[Reference]) -> list[Reference]:
    return [writer.op("Identity", [one])[0] for one in inputs[:2]]


def _sorted(writer: Writer, inputs: Sequence[Reference]) -> list[Reference]:
    return writer.op("SparseReorder", inputs)


def shares(build: Function, rows: Rows) -> list[tuple[Reference, Reference]]:
    """Returns the first entry and number of entries of each local replica."""
    replicas, sizes = build.mesh, build.sizes
    of, indices = cast(Rows, rows.of), cast(Tensor, rows.input)
    if replicas.total == 1:
        return [(sizes.scalar(0), sizes.scalar(rows.size))]
    places = replicas.lines(of.over)[0]
    bounds = [sizes.start(of, place) for place in places]
    if replicas.first_along(of.over) + len(places) < replicas.size(of.over):
        count = sizes.count(of, places[-1])
        bounds.append(sizes.plus(bounds[-1], count))
    else:
        bounds.append(sizes.scalar(_LAST))
    limits = build.cast(sizes.packed(bounds), tf.int64)
    numbers = _row_numbers(build, indices)
    one_row = build.constant([1, -1])
    found = sizes.op(
        "LowerBound",
        *(build.reshape(vector, one_row, HOST) for vector in (numbers, limits)),
    )
    found = build.flat(found)
    starts = [sizes.entry(found, n) for n in range(len(places) + 1)]
    return [
        (start, sizes.minus(end, start))
        for start, end in zip(starts, starts[1:])
    ]


def _row_numbers(build: Function, indices: Tensor) -> Reference:
    """Returns the row number of each entry: the first column of indices."""
    return build.strided_slice(
        build.given(indices)[0],
        list(map(build.constant, ([0, 0], [0, 1], [1, 1]))),
        HOST,
        begin_mask=1,
        end_mask=1,
        shrink_axis_mask=2,
    )
