"""Where the entries of each replica's sparse rows are, on the host."""

import tensorflow as tf

from kerasmgpu.partitioner.ir.instructions import value
from kerasmgpu.partitioner.kinds import REPLICATED
from kerasmgpu.partitioner.places import HOST
from kerasmgpu.partitioner.writing import branches

_LAST = tf.int32.max
"""No row has a higher number."""


def put_in_order(build, leaf):
    """Lets the entries of an input come in the order of their rows.

    They mostly do, and then stay as they are. Otherwise they are put in
    TensorFlow's order, by row and column.

    Args:
        build: The `building.Build`.
        leaf: `tracing.Sparse`.
    """
    given = [
        build.given(tensor)[0]
        for tensor in (leaf.indices, leaf.values, leaf.dense_shape)
    ]
    types = [tf.int64, leaf.values.dtype, tf.int64]
    numbers = _row_numbers(build, leaf.indices)
    zero, one, last = (build.constant([n], tf.int32, HOST) for n in (0, 1, -1))
    behind = build.strided_slice(
        numbers, one, zero, one, tf.int64, HOST, end_mask=1
    )
    before = build.strided_slice(numbers, zero, last, one, tf.int64, HOST)
    rises = build.sizes.op("LessEqual", before, behind, dtype=tf.int64)
    attributes = {"Tidx": tf.int32, "keep_dims": False}
    rises = build.op("All", [rises, zero], attributes, HOST)[0]
    attributes = branches(
        build.library,
        "kerasmgpu_entries",
        types,
        types[:2],
        (_as_they_are, _reordered),
    )
    ordered = build.op("StatelessIf", [rises, *given], attributes, HOST)
    for tensor, reference in zip((leaf.indices, leaf.values), ordered):
        build.hold(value(tensor, REPLICATED), build.same(reference))


def _as_they_are(writer, inputs):
    return [
        writer.op("Identity", [name], {"T": writer.dtype(name)}, "")[0]
        for name in inputs[:2]
    ]


def _reordered(writer, inputs):
    attributes = {"T": writer.dtype(inputs[1])}
    return writer.op("SparseReorder", inputs, attributes, "")


def shares(build, rows):
    """Starts and numbers of the entries of each local replica's rows.

    Args:
        build: The `building.Build`.
        rows: `kinds.Rows` of entries.

    Returns:
        List of pairs of references, one per local replica.
    """
    replicas, sizes = build.replicas, build.sizes
    if replicas.total == 1:
        return [(sizes.scalar(0), sizes.scalar(rows.size))]
    bounds = [sizes.start(rows.of, place) for place in range(replicas.num)]
    if replicas.first + replicas.num < replicas.total:
        count = sizes.count(rows.of, replicas.num - 1)
        bounds.append(sizes.plus(bounds[-1], count))
    else:
        bounds.append(sizes.scalar(_LAST))
    bounds = build.cast(sizes.packed(bounds), tf.int32, tf.int64, HOST)
    numbers = _row_numbers(build, rows.input)
    one_row = build.constant([1, -1], tf.int32, HOST)
    found = build.op(
        "LowerBound",
        [
            build.reshape(vector, one_row, tf.int64, HOST)
            for vector in (numbers, bounds)
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


def _row_numbers(build, indices):
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
