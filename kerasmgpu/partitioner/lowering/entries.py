"""Shards of a sparse input's entries, by row, computed on the host."""

from collections.abc import Sequence
from typing import cast

import tensorflow as tf

from kerasmgpu.partitioner.ir.instructions import value
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.writing import Writer, branches
from kerasmgpu.partitioner.rules.kinds import REPLICATED, Rows
from kerasmgpu.partitioner.step.graph import Sparse, Tensor
from kerasmgpu.partitioner.step.places import HOST

_LAST = tf.int32.max
"""Upper bound of all row numbers."""


def sort_by_row(build: Function, leaf: Sparse) -> None:
    """Sorts the entries of a sparse input by row.

    Sorted entries, the common case, stay as they are; others are sorted by row
    and column (`tf.sparse.reorder`).

    Args:
        build: The `Function`.
        leaf: `tracing.Sparse`.
    """
    references = [
        build.given(tensor)[0]
        for tensor in (leaf.indices, leaf.values, leaf.dense_shape)
    ]
    types = [tf.int64, leaf.values.dtype, tf.int64]
    numbers = _row_numbers(build, leaf.indices)
    zero, one, last = (build.constant([n], tf.int32, HOST) for n in (0, 1, -1))
    next_numbers = build.strided_slice(
        numbers, one, zero, one, tf.int64, HOST, end_mask=1
    )
    numbers = build.strided_slice(numbers, zero, last, one, tf.int64, HOST)
    is_sorted = build.sizes.op(
        "LessEqual", numbers, next_numbers, dtype=tf.int64
    )
    attributes = {"Tidx": tf.int32, "keep_dims": False}
    is_sorted = build.op("All", [is_sorted, zero], attributes, HOST)[0]
    attributes = branches(
        build.library,
        "kerasmgpu_entries",
        types,
        types[:2],
        (_unchanged, _sorted),
    )
    inputs = [is_sorted, *references]
    outputs = build.op("StatelessIf", inputs, attributes, HOST)
    for tensor, reference in zip((leaf.indices, leaf.values), outputs):
        build.hold(value(tensor, REPLICATED), build.same(reference))


def _unchanged(writer: Writer, inputs: Sequence[str]) -> list[str]:
    return [
        writer.op("Identity", [name], {"T": writer.dtype(name)}, "")[0]
        for name in inputs[:2]
    ]


def _sorted(writer: Writer, inputs: Sequence[str]) -> list[str]:
    attributes = {"T": writer.dtype(inputs[1])}
    return writer.op("SparseReorder", inputs, attributes, "")


def shares(build: Function, rows: Rows) -> list[tuple[str, str]]:
    """First entry and number of entries of each local replica's shard.

    Args:
        build: The `Function`.
        rows: `kinds.Rows` of entries.

    Returns:
        List of pairs of references, one per local replica.
    """
    replicas, sizes = build.mesh, build.sizes
    of, indices = cast(Rows, rows.of), cast(Tensor, rows.input)
    if replicas.total == 1:
        return [(sizes.scalar(0), sizes.scalar(rows.size))]
    bounds = [sizes.start(of, place) for place in range(replicas.num)]
    if replicas.first + replicas.num < replicas.total:
        count = sizes.count(of, replicas.num - 1)
        bounds.append(sizes.plus(bounds[-1], count))
    else:
        bounds.append(sizes.scalar(_LAST))
    limits = build.cast(sizes.packed(bounds), tf.int32, tf.int64, HOST)
    numbers = _row_numbers(build, indices)
    one_row = build.constant([1, -1], tf.int32, HOST)
    found = build.op(
        "LowerBound",
        [
            build.reshape(vector, one_row, tf.int64, HOST)
            for vector in (numbers, limits)
        ],
        {"T": tf.int64, "out_type": tf.int32},
        HOST,
    )[0]
    found = build.flat(found, tf.int32, HOST)
    starts = [sizes.entry(found, n) for n in range(replicas.num + 1)]
    return [
        (start, sizes.minus(end, start))
        for start, end in zip(starts, starts[1:])
    ]


def _row_numbers(build: Function, indices: Tensor) -> str:
    """The first column of indices."""
    return build.strided_slice(
        build.given(indices)[0],
        build.constant([0, 0], tf.int32, HOST),
        build.constant([0, 1], tf.int32, HOST),
        build.constant([1, 1], tf.int32, HOST),
        tf.int64,
        HOST,
        begin_mask=1,
        end_mask=1,
        shrink_axis_mask=2,
    )
