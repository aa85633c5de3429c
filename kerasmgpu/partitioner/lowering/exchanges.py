"""Sends rows of tables to the replicas that own them, and back: all-to-alls.

Each replica sends to every other the rows that the receiver owns, or the part of
another axis. In one process, pieces are read directly; between workers, they are
padded to one length, see `CollectiveReplicas.exchange`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from kerasmgpu.partitioner.lowering import halos, micro_batches
from kerasmgpu.partitioner.lowering.operations import in_part
from kerasmgpu.partitioner.lowering.packing import split
from kerasmgpu.partitioner.rules.kinds import Owned, Sharded
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.references import Reference
from kerasmgpu.partitioner.step.sizes import SizeLike
from kerasmgpu.replica_arithmetic import bounds_of

if TYPE_CHECKING:
    from kerasmgpu.partitioner.ir.exchanges import AllToAll, LookUp, ToOwners
    from kerasmgpu.partitioner.ir.instructions import Value
    from kerasmgpu.partitioner.lowering.building import Build

Pieces = Sequence[Sequence[Reference]]
"""References to pieces, by place of this process, then by replica of the job."""


def look_up(build: "Build", look_up: "LookUp") -> list[Reference]:
    """Looks up rows of a table in micro-batches' turns; returns them by place."""
    parts, *others = map(build.references, look_up.inputs)
    parts = micro_batches.of_first(build, cast(list[Reference], parts))
    inputs = [parts, *others]
    made: dict[int, Reference] = {}
    names: dict[int, str] = {}
    for places, devices in micro_batches.each_turn(build):
        own = [[references[place] for place in places] for references in inputs]

        def take_turn(device: int, places: Sequence[int] = places) -> None:
            build.take_turn(look_up, places[device])

        rows, wrote = _looked_up(devices, look_up, own, take_turn)
        for place, reference, name in zip(places, rows, wrote):
            made[place], names[place] = reference, name
    for place in range(build.mesh.num):
        build.note_done(look_up.node, names[place])
    return [made[place] for place in range(build.mesh.num)]


def _looked_up(
    build: "Build",
    look_up: "LookUp",
    inputs: Sequence[Sequence[Reference]],
    take_turn: Callable[[int], None],
) -> tuple[list[Reference], list[str]]:
    """Looks up table rows by index, across replicas.

    Sends each place's row indices to the replicas that own the rows, looks the
    rows up there, and sends them back.

    Args:
        build: The `Build`, with a place per device.
        look_up: The look-up, of `(table, indices, …)`.
        inputs: For each of its inputs, its references by place.
        take_turn: Called with a place before nodes are written for it.

    Returns:
        References to the rows, and names of the look-up nodes, by place.
    """
    node, table = look_up.node, look_up.inputs[0].sharded
    numbers, made = look_up.inputs[1].tensor, look_up.outputs[0].tensor
    inner = cast(tuple[SizeLike, ...], made.shape[len(numbers.shape) :])
    places = range(build.mesh.num)
    flat, positions = [], []
    for place in places:
        take_turn(place)
        flat.append(build.flat(inputs[1][place], place))
        positions.append(_positions(build, flat[place]))
    owners = _owners(build, table, flat, take_turn)
    sent = _divided(build, flat, owners, take_turn)
    where = _divided(build, positions, owners, take_turn)
    counts = build.replicas.exchange_counts(build, sent)
    asked = build.replicas.exchange(build, sent, counts, 1)
    found, names = [], []
    for place in places:
        take_turn(place)
        own = build.concat(asked[place], 0, place)
        own = in_part(build, table.rows, place, own)
        others = [references[place] for references in inputs[2:]]
        rows = build.copy(node, [inputs[0][place], own, *others], place)[0]
        names.append(build.writer.last)
        sizes = [build.sizes.size(one) for one in asked[place]]
        found.append(split(build, rows, 0, sizes))
    back = build.replicas.exchange(
        build, found, counts, 1 + len(inner), is_back=True
    )
    results = []
    for place in places:
        take_turn(place)
        stitched = build.op(
            "DynamicStitch", [*where[place], *back[place]], place
        )[0]
        shape = build.concat(
            [build.sizes.shape(inputs[1][place]), build.sizes.vector(inner)],
            0,
            HOST,
        )
        results.append(build.reshape(stitched, shape))
    return results, names


def all_to_all(build: "Build", exchange: "AllToAll") -> list[Reference]:
    """Divides a value along another axis; returns its parts by place."""
    mesh, (one,), (made,) = build.mesh, exchange.inputs, exchange.outputs
    before, after = one.sharded, made.sharded
    held, wanted = mesh.ranges(before), mesh.ranges(after)
    pieces = []
    for place, part in enumerate(build.references(one)):
        build.take_turn(exchange, place)
        pieces.append(
            [halos.cut(build, part, after.axis, one) for one in wanted]
        )
    if mesh.num_workers > 1:  # Only vectors differ in one axis.
        pieces = [[build.flat(piece) for piece in row] for row in pieces]
    counts = build.replicas.exchange_counts(build, pieces)
    parts = []
    for place, received in enumerate(
        build.replicas.exchange(build, pieces, counts, 1)
    ):
        if mesh.num_workers > 1:
            start, end = mesh.range_at(after, place)
            shape = list(made.tensor.shape or ())
            shape[after.axis] = end - start
            for number, (start, end) in enumerate(held):
                shape[before.axis] = end - start
                whole = build.sizes.vector(tuple(shape))
                received[number] = build.reshape(received[number], whole)
        parts.append(build.concat(received, before.axis, place))
    return parts


def to_owners(build: "Build", move: "ToOwners") -> list[Reference]:
    """Sends updates, by their row numbers, to the replicas that own the rows.

    They arrive in the order of the batch. With several micro-batches, a
    device's first micro-batch gets all updates for its device, and the others
    get none.

    Returns:
        References by place.
    """
    (made,), (sent, numbers) = move.outputs, move.inputs
    kind, tensor = cast(Owned, made.kind), sent.tensor
    inner = tensor.shape[len(numbers.tensor.shape) :]
    each, devices = build.mesh.micro_batches, build.of_devices()

    def flat(one: "Value") -> list[Reference]:
        """Returns a value by device, with the numbers' axes flattened to one.

        Rows of a device's micro-batches are concatenated.
        """
        shape = one.tensor.shape[len(numbers.tensor.shape) :]
        rows = build.sizes.vector((-1, *shape))
        flat = [
            build.reshape(reference, rows, place)
            for place, reference in enumerate(build.references(one))
        ]
        return [
            build.concat(flat[place : place + each], 0, place)
            for place in range(0, build.mesh.num, each)
        ]

    def routes() -> tuple[list[Reference], Reference | None]:
        own = flat(numbers)
        owners = _owners(devices, kind.table, own)
        pieces = _divided(devices, own, owners)
        return owners, devices.replicas.exchange_counts(devices, pieces)

    # One per phase: a phase can't wait for a collective of a later phase.
    key = ("routes", numbers, kind.table, build.writer.cursor.time)
    owners, counts = build.keep(key, routes)
    pieces = _divided(devices, flat(sent), owners)
    arrived = devices.replicas.exchange(devices, pieces, counts, 1 + len(inner))
    results: list[Reference] = []
    for device, parts in enumerate(arrived):
        results.append(devices.concat(parts, 0, device))
        for _ in range(1, each):
            none = np.zeros((0, *inner))
            results.append(build.constant(none, tensor.dtype, len(results)))
    return results


def _positions(build: "Build", flat: Reference) -> Reference:
    """Returns the indices of a vector's elements: 0, 1, 2 …"""
    zero, one = build.sizes.scalar(0), build.sizes.scalar(1)
    bounds = [zero, build.sizes.size(flat), one]
    return build.op("Range", bounds, build.place_of(flat))[0]


def _owners(
    build: "Build",
    table: Sharded,
    numbers: Sequence[Reference],
    take_turn: Callable[[int], None] = lambda place: None,
) -> list[Reference]:
    """Returns by place, for each row number, the replica that owns the row.

    Numbers out of range belong to the first or the last replica, whose kernel
    handles them as on one device.
    """
    bounds = bounds_of(cast(int, table.rows.size), build.mesh.total)
    found = []
    for place, reference in enumerate(numbers):
        take_turn(place)
        ends = build.constant([bounds[1:-1]], reference.dtype, place)
        row = build.reshape(reference, build.constant([1, -1]))
        owners = build.op("UpperBound", [ends, row])[0]
        found.append(build.flat(owners))
    return found


def _divided(
    build: "Build",
    rows: Sequence[Reference],
    owners: Sequence[Reference],
    take_turn: Callable[[int], None] = lambda place: None,
) -> Pieces:
    """Divides each place's rows into a piece for each owner."""
    made = []
    for place, pair in enumerate(zip(rows, owners)):
        take_turn(place)
        made.append(
            build.op(
                "DynamicPartition", pair, place, num_partitions=build.mesh.total
            )
        )
    return made
