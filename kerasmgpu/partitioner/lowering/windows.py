"""Writes operations on windows along axes that a mesh divides."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from kerasmgpu.partitioner.lowering import empty_shares, halos
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.packing import padded
from kerasmgpu.partitioner.rules.halos import (
    OnImages,
    constant_pairs,
    halo_of,
)
from kerasmgpu.partitioner.rules.kinds import LocalSizes, Sharded
from kerasmgpu.partitioner.rules.table import ON_WINDOWS, Emit, Plan
from kerasmgpu.partitioner.rules.window_ranges import Makes, Part, Range
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import record
from kerasmgpu.partitioner.step.references import Reference

Parts = Mapping[int, Part]
"""The part of each axis that is divided."""
Cuts = list[tuple[int, Range]]
"""Axes of what an operation computes, and which elements of each are kept."""


def write(
    plans: Sequence[Plan],
    is_guarded: bool,
    build: Function,
    node: Node,
    plan: Plan,
    place: int,
    inputs: Sequence[Reference],
) -> list[Reference]:
    """Writes the part of a node that computes a replica's share.

    What it computes besides is cut off.

    Args:
        plans: Its plan on each axis of the mesh.
        is_guarded: Whether its kernel fails for a share without rows of the
            batch; see `empty_shares`.
        plan: Unused: one of `plans`.
    """
    inputs = list(inputs)
    cuts: Cuts = []
    parts: dict[int, Part] = {}
    others = [one for one in plans if one.emit not in ON_WINDOWS]
    divided = [one for one in plans if one.emit in ON_WINDOWS]
    for one in divided:
        halo = halo_of(one)
        share, axis = build.mesh.part_of(halo.rows, place), halo.axis
        part = halo.reach.windows.part(share, halo.reach.makes)
        parts[axis] = part
        is_of_windows = halo.reach.makes is Makes.WINDOWS
        made = part.windows if is_of_windows else part.rows
        before, behind = share[0] - made[0], made[1] - share[1]
        if not before and not behind:
            continue
        if isinstance(one.gives[0], Sharded):
            cuts.append((axis, (before, before + share[1] - share[0])))
        for number, want in enumerate(one.wants):
            # Windows that aren't its own add nothing to a filter's gradient.
            if isinstance(want, Sharded):
                widths = [0] * (2 * axis) + [before, behind]
                inputs[number] = _padded(build, inputs[number], node, widths)
            elif isinstance(want, LocalSizes):
                more = [0] * len(node.outputs[0].shape)
                more[axis] = before + behind
                own = inputs[number]
                inputs[number] = build.sizes.op(
                    "AddV2", own, build.constant(more, own.dtype)
                )
    told = _TOLD[cast(Emit, divided[0].emit)]
    attributes = told(build, node, parts, inputs)
    if build.mesh.has_cpus and _is_slow(node, attributes):
        attributes = _pad_images(build, node, parts, inputs, attributes, cuts)
    if is_guarded:
        outputs = empty_shares.write(
            others, build, node, plan, place, inputs, **attributes
        )
    else:
        outputs = build.copy(node, inputs, place, **attributes)
    for axis, kept in cuts:
        outputs = [halos.cut(build, one, axis, kept) for one in outputs]
    return outputs


def _paddings(
    build: Function, node: Node, parts: Parts, inputs: list[Reference]
) -> dict[str, Any]:
    """Returns attributes that give a convolution or pool its parts' padding."""
    rule = cast(OnImages, record(node.type).plan)
    around = cast(list[Range], rule.paddings(node))
    for axis, part in parts.items():
        around[axis] = part.padding
    if not rule.takes_paddings(node):
        return {}
    return _paddings_of(around)


def _is_slow(node: Node, attributes: Mapping[str, Any]) -> bool:
    """Whether CPUs take long for a convolution's gradient, for its padding.

    oneDNN has gradients for `SAME` and `VALID` only. For other paddings
    TensorFlow's own kernels take up to four times as long, and copy each window.
    """
    is_gradient = node.type.startswith("Conv2DBackprop")
    return is_gradient and attributes.get("padding") == "EXPLICIT"


def _pad_images(
    build: Function,
    node: Node,
    parts: Parts,
    inputs: list[Reference],
    attributes: dict[str, Any],
    cuts: Cuts,
) -> dict[str, Any]:
    """Has a convolution's gradient computed on padded images.

    Returns:
        Attributes that give no padding; those given if a size is unknown.
    """
    flat = attributes["explicit_paddings"]
    around = list(zip(flat[::2], flat[1::2]))
    if cast(OnImages, record(node.type).plan).sums:  # By the filter.
        inputs[0] = _padded(build, inputs[0], node, flat)
        return _paddings_of([])
    shape = list(node.outputs[0].shape)
    for axis, part in parts.items():
        shape[axis] = part.rows[1] - part.rows[0]
    padded_axes = [axis for axis, pair in enumerate(around) if any(pair)]
    if not all(isinstance(shape[axis], int) for axis in padded_axes):
        return attributes
    more = build.constant(list(map(sum, around)), inputs[0].dtype)
    inputs[0] = build.sizes.op("AddV2", inputs[0], more)
    for axis in padded_axes:
        before = around[axis][0]
        cuts.insert(0, (axis, (before, before + shape[axis])))
    return _paddings_of([])


def _paddings_of(around: Sequence[Range]) -> dict[str, Any]:
    """Returns the attributes for a padding before and behind each axis."""
    if not any(map(any, around)):
        return {"padding": "VALID", "explicit_paddings": []}
    flat = [number for pair in around for number in pair]
    return {"padding": "EXPLICIT", "explicit_paddings": flat}


def _around(
    build: Function, node: Node, parts: Parts, inputs: list[Reference]
) -> dict[str, Any]:
    """Replaces the input of paddings, or of crops."""
    # Of a block of some axes, the vector of its sizes is in front.
    number = 1 if node.inputs[1].rank == 2 else 2
    around = cast(list[Range], constant_pairs(node.inputs[number]))
    for axis, part in parts.items():
        around[axis if number == 1 else axis - 1] = part.padding
    inputs[number] = build.constant(around, inputs[number].dtype)
    return {}


def _begin(
    build: Function, node: Node, parts: Parts, inputs: list[Reference]
) -> dict[str, Any]:
    """Replaces the input of where a `Slice` begins."""
    begin = list(node.inputs[1].value)
    for axis, part in parts.items():
        begin[axis] = -part.padding[0]
    inputs[1] = build.constant(begin, inputs[1].dtype)
    return {}


def _bounds(
    build: Function, node: Node, parts: Parts, inputs: list[Reference]
) -> dict[str, Any]:
    """Replaces a strided slice's begin and end; returns its masks."""
    begin, end, strides = (list(node.inputs[n].value) for n in (1, 2, 3))
    masks = {name: node.attr(name) for name in ("begin_mask", "end_mask")}
    for axis, part in parts.items():
        first, last = part.windows
        begin[axis] = -part.padding[0]
        end[axis] = begin[axis] + (last - first - 1) * strides[axis] + 1
        masks = {name: bits & ~(1 << axis) for name, bits in masks.items()}
    for number, bound in ((1, begin), (2, end)):
        inputs[number] = build.constant(bound, inputs[number].dtype)
    return masks


_TOLD: Mapping[Emit, Callable[..., dict[str, Any]]] = MappingProxyType(
    {
        Emit.WINDOWS: _paddings,
        Emit.WINDOWS_PADDED: _around,
        Emit.WINDOWS_CUT: _begin,
        Emit.WINDOWS_BY_STEPS: _bounds,
    }
)
"""How operations are told the padding of their parts."""


def _padded(
    build: Function, reference: Reference, node: Node, widths: Sequence[int]
) -> Reference:
    """Pads a gradient of windows with zeros, along its first axes."""
    rank = len(node.outputs[0].shape)
    rest = [0] * (2 * rank - len(widths))
    sizes = [build.sizes.scalar(number) for number in (*widths, *rest)]
    return padded(build, reference, sizes)
