"""Kernels that must not see a share without rows.

TensorFlow's convolutions and pools on CPUs end the process, or return wrong
shapes, for no rows; cuDNN's recurrent layers refuse them. Where a share may be
empty they run in a branch; the other branch runs them on one row more, of zeros,
which for integers, lengths of sequences, is one of ones, and drops it. Mirrored
padding, which XLA refuses too, always has the row more: it only copies.
"""

import tensorflow as tf

from kerasmgpu.partitioner.kinds import Kept, LocalSizes, Sharded
from kerasmgpu.partitioner.records import Trait, record
from kerasmgpu.partitioner.writing import branches


def write(build, node, plan, place, inputs):
    """Writes a node for one replica, so that it never sees an empty share."""
    prefix, controls = f"replica_{place}/", build.controls(node, place)
    if Trait.MIRRORS in record(node.type).traits:
        device = build.device(place)
        return _with_a_row_more(
            build.writer, node, plan, inputs, device, prefix, controls
        )
    sharded = next(k for k in plan.wants if isinstance(k, Sharded))
    attributes = build.keep(
        ("branches", node),
        lambda: branches(
            build.library,
            f"kerasmgpu_{node.type}",
            [tensor.dtype for tensor in node.inputs],
            [tensor.dtype for tensor in node.outputs],
            (  # For a share with rows, and for one without.
                lambda writer, given: writer.copy(node, given, "", ""),
                lambda writer, given: _with_a_row_more(
                    writer, node, plan, given
                ),
            ),
        ),
    )
    count = build.sizes.count(sharded.rows, place)
    has_rows = build.sizes.op("Greater", count, build.sizes.scalar(0))
    name = prefix + node.name
    return build.op(
        "If", [has_rows, *inputs], attributes, place, name, controls
    )


def _with_a_row_more(
    writer, node, plan, inputs, device="", prefix="", controls=()
):
    """Writes a node that sees one more row before the others, and drops it."""
    rank = len(node.outputs[0].shape)
    given = [
        _row_added(writer, tensor, kind, reference, rank, device)
        for tensor, kind, reference in zip(node.inputs, plan.wants, inputs)
    ]
    outputs = writer.copy(node, given, device, prefix, controls)
    return [
        _row_dropped(writer, tensor, kind.axis, reference, device)
        if isinstance(kind, Sharded) and not isinstance(kind, Kept)
        else reference
        for tensor, kind, reference in zip(node.outputs, plan.gives, outputs)
    ]


def _row_added(writer, tensor, kind, reference, rank, device):
    """An input with one more row in front; or sizes of `rank` axes."""
    if isinstance(kind, Kept):
        return reference
    if isinstance(kind, Sharded):
        paddings = [[int(n == kind.axis), 0] for n in range(len(tensor.shape))]
        paddings = writer.constant(paddings, tf.int32, device)
        row = int(tensor.dtype.is_integer)
        row = writer.constant(row, tensor.dtype, device)
        attributes = {"T": tensor.dtype, "Tpaddings": tf.int32}
        given = [reference, paddings, row]
        return writer.op("PadV2", given, attributes, device)[0]
    if isinstance(kind, LocalSizes):
        one = [int(axis == kind.sharded.axis) for axis in range(rank)]
        one = writer.constant(one, tensor.dtype, device)
        attributes = {"T": tensor.dtype}
        return writer.op("AddV2", [reference, one], attributes, device)[0]
    return reference


def _row_dropped(writer, tensor, axis, reference, device):
    """An output without its first row."""
    rank = len(tensor.shape)
    begin = [int(n == axis) for n in range(rank)]
    begin = writer.constant(begin, tf.int32, device)
    size = writer.constant([-1] * rank, tf.int32, device)
    attributes = {"T": tensor.dtype, "Index": tf.int32}
    return writer.op("Slice", [reference, begin, size], attributes, device)[0]
