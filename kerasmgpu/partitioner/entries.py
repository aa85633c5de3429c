"""Where the entries of each replica's sparse rows are, on the host."""

import tensorflow as tf

from kerasmgpu.partitioner.places import HOST

_LAST = tf.int32.max
"""No row has a higher number."""


def require_order(build, indices):
    """Lets nothing happen unless entries come in the order of their rows.

    Args:
        build: The `building.Build`, in which nothing was written yet that has
            an effect.
        indices: `graph.Tensor` `[entries, rank]`, an input.
    """
    numbers = _row_numbers(build, indices)
    zero, one, last = (build.constant([n], tf.int32, HOST) for n in (0, 1, -1))
    behind = build.strided_slice(
        numbers, one, zero, one, tf.int64, HOST, end_mask=1
    )
    before = build.strided_slice(numbers, zero, last, one, tf.int64, HOST)
    attributes = {"T": tf.int64}
    rises = build.op("LessEqual", [before, behind], attributes, HOST)[0]
    attributes = {"Tidx": tf.int32, "keep_dims": False}
    rises = build.op("All", [rises, zero], attributes, HOST)[0]
    build.require(
        rises,
        "The entries of a sparse input are not in the order of their rows. Call "
        "tf.sparse.reorder(...) on it where the batch is made.",
    )
    # Where entries are looked for, they are in order.
    attributes = {"T": tf.int64}
    checked = build.op(
        "Identity",
        [numbers],
        attributes,
        HOST,
        "checked",
        controls=[build.writer.last],
    )
    build.keep(("row numbers", indices), lambda: checked[0])


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
    numbers = build.keep(
        ("row numbers", rows.input), lambda: _row_numbers(build, rows.input)
    )
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
    flat = build.constant([-1], tf.int32, HOST)
    found = build.reshape(found, flat, tf.int32, HOST)
    starts = [sizes.entry(found, n) for n in range(replicas.num + 1)]
    return [
        (start, build.op("Sub", [end, start], {"T": tf.int32}, HOST)[0])
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
