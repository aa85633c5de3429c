"""Guards kernels that fail for shares without rows.

For no rows TensorFlow's convolutions and pools on CPUs crash the process or
return wrong shapes, and cuDNN's recurrent layers raise. Where a share can be
empty, an `If` chooses: with rows, the kernel as it is; without, the kernel on
one padding row, which is dropped from the result. The padding row is zeros, or
ones for integers, which are lengths of sequences. Mirrored padding, which XLA
refuses for no rows too, always gets the padding row, as it only copies.
"""

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.writing import Writer, branches
from kerasmgpu.partitioner.rules.kinds import (
    Kept,
    Kind,
    LocalSizes,
    Rows,
    Sharded,
)
from kerasmgpu.partitioner.rules.table import Plan
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.partitioner.step.references import Reference


def write(
    plans: Sequence[Plan],
    build: Function,
    node: Node,
    plan: Plan,
    place: int,
    inputs: Sequence[Reference],
    **attributes: Any,
) -> list[Reference]:
    """Writes a guarded node for one replica; returns its outputs.

    Args:
        plans: Its plan on each axis of the mesh.
        plan: Unused: one of `plans`.
        **attributes: Attributes that replace those of the node.
    """
    plans = [one for one in plans if one.is_local]
    prefix, controls = f"replica_{place}/", build.controls(node, place)
    if Trait.MIRRORS in node.traits:
        device = build.device(place)
        return _with_padding_row(
            build.writer, node, plans, inputs, device, prefix, controls
        )
    bodies = build.keep(
        ("branches", node, str(attributes)),
        lambda: branches(
            build.library,
            f"kerasmgpu_{node.type}",
            inputs,
            (  # With rows; without rows.
                lambda writer, inputs: writer.copy(
                    node, inputs, attributes=attributes
                ),
                lambda writer, inputs: _with_padding_row(
                    writer, node, plans, inputs, attributes=attributes
                ),
            ),
        ),
    )
    counts = [build.sizes.count(_rows_of(one), place) for one in plans]
    elements = functools.reduce(build.sizes.times, counts)
    has_rows = build.sizes.op("Greater", elements, build.sizes.scalar(0))
    inputs, name = [has_rows, *inputs], prefix + node.name
    return build.op("If", inputs, place, name, controls, **bodies)


def _with_padding_row(
    writer: Writer,
    node: Node,
    plans: Sequence[Plan],
    inputs: Sequence[Reference],
    device: str = "",
    prefix: str = "",
    controls: Sequence[str] = (),
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> list[Reference]:
    """Writes a node with a padding row in front of its inputs' rows.

    Returns:
        References to the outputs, without that row.
    """
    rank = len(node.outputs[0].shape)
    for plan in plans:
        inputs = [
            _padded(writer, tensor, kind, reference, rank, device)
            for tensor, kind, reference in zip(node.inputs, plan.wants, inputs)
        ]
    outputs = writer.copy(node, inputs, device, prefix, controls, attributes)
    for plan in plans:
        outputs = [
            _without_padding(writer, tensor, kind.axis, reference, device)
            if isinstance(kind, Sharded) and not isinstance(kind, Kept)
            else reference
            for tensor, kind, reference in zip(
                node.outputs, plan.gives, outputs
            )
        ]
    return outputs


def _rows_of(plan: Plan) -> Rows:
    """Returns the rows by which a plan divides its first divided input."""
    return next(k.rows for k in plan.wants if isinstance(k, Sharded))


def _padded(
    writer: Writer,
    tensor: Tensor,
    kind: Kind,
    reference: Reference,
    rank: int,
    device: str,
) -> Reference:
    """Adds the padding row to a sharded input, or to the rows in local sizes.

    Args:
        rank: Rank of the operation's first output, to which local sizes refer.

    Returns:
        Reference to the padded input; `reference` for other kinds, `Kept` too.
    """
    if isinstance(kind, Kept):
        return reference
    if isinstance(kind, Sharded):
        widths = [[int(n == kind.axis), 0] for n in range(len(tensor.shape))]
        paddings = writer.constant(widths, tf.int32, device)
        number = int(tensor.dtype.is_integer)
        row = writer.constant(number, tensor.dtype, device)
        return writer.op("PadV2", [reference, paddings, row], device)[0]
    if isinstance(kind, LocalSizes):
        is_rows = [int(axis == kind.sharded.axis) for axis in range(rank)]
        one = writer.constant(is_rows, tensor.dtype, device)
        return writer.op("AddV2", [reference, one], device)[0]
    return reference


def _without_padding(
    writer: Writer, tensor: Tensor, axis: int, reference: Reference, device: str
) -> Reference:
    """Removes the padding row, the first one along `axis`, from an output."""
    rank = len(tensor.shape)
    begin = [int(n == axis) for n in range(rank)]
    start = writer.constant(begin, tf.int32, device)
    size = writer.constant([-1] * rank, tf.int32, device)
    return writer.op("Slice", [reference, start, size], device)[0]
