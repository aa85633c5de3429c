"""Communication of devices that work through several micro-batches each.

A micro-batch is a share of the rows like any other, but several shares have one
device. A `Build` has a place for each share; devices communicate through its
view `Build.of_devices`, which has one for each device.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from kerasmgpu.partitioner.ir.instructions import ReduceScatter, Value
from kerasmgpu.partitioner.ir.sent_types import has_parts
from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.lowering.function_writer import References
from kerasmgpu.partitioner.mesh import first_on_device
from kerasmgpu.partitioner.rules.kinds import Sharded
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.references import Reference


def reduce(
    build: Build,
    tensors: Sequence[Tensor],
    parts: Sequence[Sequence[Reference]],
    by: str,
) -> Sequence[References]:
    """All-reduces partial tensors over the devices; see `Replicas.reduce`.

    Micro-batches of a device have one part, which `Accumulate` has made.

    Returns:
        For each tensor, references by micro-batch.
    """
    devices = build.of_devices()
    first = [own[:: build.mesh.micro_batches] for own in parts]
    totals = devices.replicas.reduce(devices, tensors, first, by)
    return [_of_all_turns(build, one) for one in totals]


def gather(build: Build, one: Value, parts: Sequence[Reference]) -> References:
    """All-gathers a value; a device's micro-batches share the result.

    Rows of a batch are gathered from all micro-batches. A sharded variable has
    one part per device: that of its first micro-batch is used. See
    `Replicas.gather`.
    """
    each = build.mesh.micro_batches
    if has_parts(build.mesh, one):
        devices = build.of_devices()
        whole = devices.replicas.gather(devices, one, parts[::each])
        return _of_all_turns(build, whole)
    gathered = build.replicas.gather(build, one, parts)
    if each == 1 or isinstance(gathered, list):
        return gathered
    # Written when asked for: at each device's first place only.
    return [
        gathered[first_on_device(build.mesh, place)]
        for place in range(build.mesh.num)
    ]


def reduce_scatter(
    build: Build, reduction: ReduceScatter, parts: Sequence[Sequence[Reference]]
) -> Sequence[Sequence[Reference]]:
    """Reduce-scatters over the devices; see `Replicas.reduce_scatter`.

    Args:
        reduction: The reduce-scatter; its outputs are sharded as variables.
        parts: For each of its inputs, references by micro-batch, in the type in
            which it is summed; those of a device are one part.

    Returns:
        For each output, references by micro-batch; see `first_only`.
    """
    devices, outputs = build.of_devices(), reduction.outputs
    first = [own[:: build.mesh.micro_batches] for own in parts]
    results = devices.replicas.reduce_scatter(devices, outputs, first)
    return [first_only(build, one, own) for one, own in zip(outputs, results)]


def _of_all_turns(build: Build, references: References) -> References:
    """Returns, for each micro-batch, its device's reference."""
    each = build.mesh.micro_batches
    if each == 1:
        return references
    return [references[place // each] for place in range(build.mesh.num)]


def of_first(build: Build, parts: Sequence[Reference]) -> list[Reference]:
    """Returns, for each micro-batch, the reference of its device's first one."""
    return [
        parts[first_on_device(build.mesh, place)]
        for place in range(build.mesh.num)
    ]


def gather_in_turns(
    build: Build, one: Value, parts: Sequence[Reference]
) -> References:
    """All-gathers a variable over the devices, for each micro-batch anew.

    Args:
        one: The variable, sharded over the devices.
        parts: For each micro-batch, a reference to its device's part.
    """
    made: dict[int, Reference] = {}
    for places, devices in each_turn(build):
        own = [parts[place] for place in places]
        whole = devices.replicas.gather(devices, one, own)
        for number, place in enumerate(places):
            made[place] = whole[number]
    return [made[place] for place in range(build.mesh.num)]


def reduce_scatter_in_turns(
    build: Build, reduction: ReduceScatter, parts: Sequence[Sequence[Reference]]
) -> Sequence[Sequence[Reference]]:
    """Reduce-scatters in each turn, and adds up the turns' results on devices.

    See `reduce_scatter`; here each micro-batch has a part of its own.
    """
    totals: dict[tuple[int, int], list[Reference]] = {}
    for places, devices in each_turn(build):
        given = [[own[place] for place in places] for own in parts]
        made = devices.replicas.reduce_scatter(
            devices, reduction.outputs, given
        )
        for number, own in enumerate(made):
            for device, place in enumerate(places):
                build.take_turn(reduction, place)
                summed = [*totals.get((number, device), ()), own[device]]
                totals[number, device] = build.op("AddN", summed, place)
    every_device = range(build.mesh.num // build.mesh.micro_batches)
    return [
        first_only(
            build, one, [totals[number, device][0] for device in every_device]
        )
        for number, one in enumerate(reduction.outputs)
    ]


def each_turn(build: Build) -> "Iterator[tuple[range, Build]]":
    """Yields each turn's places, and the function with a place per device.

    Collectives that are written until the next turn have the turn's time; see
    `writing.Cursor`. Without micro-batches, there is one turn of all places.
    """
    each = build.mesh.micro_batches
    if each == 1:
        yield range(build.mesh.num), build
        return
    phase, _ = build.writer.cursor.time
    for turn in range(each):
        build.writer.move(turn=None, time=(phase, turn))
        yield range(turn, build.mesh.num, each), build.of_devices(turn)
    build.writer.move(turn=None)


def first_only(
    build: Build, one: Value, parts: Sequence[Reference]
) -> list[Reference]:
    """Gives each device's part to its first micro-batch, no rows to others."""
    each = build.mesh.micro_batches
    if each == 1:
        return list(parts)
    made: list[Reference] = []
    shape: list[Any] = list(one.tensor.shape)
    for part in parts:
        for kind in one.placement:
            if (
                isinstance(kind, Sharded)
                and build.mesh.micro_batch_axis not in kind.rows.over
            ):
                start, end = build.mesh.part_of(kind.rows, len(made))
                shape[kind.axis] = (end - start) * cast(int, kind.inner)
        axis = cast(Sharded, one.placement[0]).axis
        shape[axis] = 0
        made.append(part)
        for _ in range(1, each):
            if all(isinstance(size, int) for size in shape):
                none = build.constant(np.zeros(shape), part.dtype, len(made))
            else:
                none = _no_rows(build, part, axis)
            made.append(none)
    return made


def _no_rows(build: Build, part: Reference, axis: int) -> Reference:
    """Slices no rows of a part whose other sizes the batch decides."""
    bounds = [build.constant([bound] * (axis + 1)) for bound in (0, 0, 1)]
    in_front = (1 << axis) - 1
    return build.strided_slice(
        part,
        bounds,
        build.place_of(part),
        begin_mask=in_front,
        end_mask=in_front,
    )
