"""Communication on a mesh of several axes, along some of them at a time.

The replicas that differ in their position along these only are a line. They
communicate as a mesh of one axis does, and each line does so by itself.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

from kerasmgpu.partitioner.ir.exchanges import LookUp
from kerasmgpu.partitioner.ir.instructions import (
    AllGather,
    AllReduce,
    Communication,
    Instruction,
    ReduceScatter,
    Value,
)
from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.rules.compatible import is_outside, undivided
from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    REPLICATED,
    LocalSizes,
    MeshAxes,
    Partial,
    PartlySummed,
    PerReplica,
    Sharded,
    WithHalo,
    is_of_variable,
)
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.references import Reference
from kerasmgpu.replica_arithmetic import bounds_of

_LOCAL_KINDS = (Sharded, WithHalo, Partial, PerReplica, LocalSizes)
"""Kinds of which a device's micro-batches can hold different values."""


def on_each(
    build: Build, instruction: Instruction, write: Callable[[Build, Any], None]
) -> None:
    """Writes an instruction along each line of its mesh axes.

    Along all axes of the mesh it is written as it is. Only some lines write it
    where others have the same result; see `_writing_lines`.

    Args:
        write: Function that writes it on a mesh of one axis.
    """
    mesh = build.mesh
    along = instruction.along(mesh)
    if mesh.planning_axes == (along,):
        write(build, instruction)
        return
    lines = mesh.lines(along)
    each = mesh.micro_batches // mesh.shares_along(along)
    writing = _writing_lines(build, instruction, len(lines), each)
    sends_in_turns = isinstance(instruction, Communication) and (
        instruction.is_of_rows
    )
    node = instruction.node if isinstance(instruction, LookUp) else None
    began = build.writer.cursor.time
    made: list[dict[int, Reference]] = [{} for _ in instruction.outputs]
    ran: dict[int, str] = {}
    done: dict[int, str] = {}
    for number in dict.fromkeys(writing):
        places = lines[number]
        line = build.on_line(along, places)
        time = began
        if sends_in_turns:
            time = began[0], number % each
        build.writer.move(time=time)
        inputs, outputs = (
            tuple(
                _on_line(build, one, instruction.axis, along, places)
                for one in values
            )
            for values in (instruction.inputs, instruction.outputs)
        )
        own = dataclasses.replace(instruction, inputs=inputs, outputs=outputs)
        if instruction in build.program.phases:
            build.program.phases[own] = build.program.phases[instruction]
        for one, given in zip(inputs, instruction.inputs):
            references = build.references(given)
            line.give(one, [references[place] for place in places])
        _write(line, own, write)
        for one, found in zip(outputs, made):
            references = line.references(one)
            found.update((p, references[n]) for n, p in enumerate(places))
        for names, all_names in zip(build.take_names(own, node), (ran, done)):
            all_names.update(zip(places, names))
    writers = {
        place: maker
        for places, number in zip(lines, writing)
        for place, maker in zip(places, lines[number])
    }
    from_writers = [writers[place] for place in range(mesh.num)]
    for one, found in zip(instruction.outputs, made):
        of_place = [found[place] for place in from_writers]
        (build.hold if node is None else build.give)(one, of_place)
    build.note_ran(
        instruction, [ran[place] for place in from_writers if place in ran]
    )
    if node is not None:
        for place in from_writers:
            build.note_done(node, done[place])


def _writing_lines(
    build: Build, instruction: Instruction, number: int, each: int
) -> list[int]:
    """Returns for each line the number of the one that writes its results.

    If all lines make the same whole values, and share memory, that is the first
    one. Micro-batches that don't have shards, or send accumulated parts, take
    the results of the device's first one.

    Args:
        number: Number of lines.
        each: Number of lines of each device.
    """
    are_same = build.mesh.shares_memory and all(
        kind == REPLICATED
        for one in instruction.outputs
        for kind in one.placement
    )
    differ: tuple[type, ...] = _LOCAL_KINDS
    if isinstance(instruction, Communication):
        differ = Sharded, WithHalo
    in_turns = any(
        isinstance(one.placement[0], differ)
        for one in (*instruction.inputs, *instruction.outputs)
    )
    lines = []
    for line in range(number):
        device, turn = divmod(line, each)
        writer = (0 if are_same else device) * each
        lines.append(writer + (turn if in_turns else 0))
    return lines


def _write(
    line: Build, instruction: Instruction, write: Callable[[Build, Any], None]
) -> None:
    """Writes an instruction; values without elements are not sent.

    A variable of one column has no part on the second of two columns of
    replicas, and TensorFlow's collectives (2.18 to 2.21) crash for such parts.
    """
    is_restored = isinstance(instruction, AllGather) and instruction.restoring
    if not is_restored and isinstance(
        instruction, (AllGather, AllReduce, ReduceScatter)
    ):
        pairs = list(zip(instruction.inputs, instruction.outputs))
        sent = [(i, o) for i, o in pairs if o.tensor.num_elements != 0]
        for _, made in pairs:
            if made.tensor.num_elements == 0:
                places = range(line.mesh.num)
                line.hold(made, [_empty(line, made, n) for n in places])
        if not sent:
            return
        instruction.inputs, instruction.outputs = zip(*sent)
    write(line, instruction)


def _empty(line: Build, one: Value, place: int) -> Reference:
    """Writes a replica's part of a value without elements."""
    sizes: list[Reference] = list(map(line.sizes.scalar, one.tensor.shape))
    if isinstance(one.kind, Sharded):
        sizes[one.kind.axis] = line.sizes.local(one.kind, place)
    shape = line.sizes.packed(sizes)
    zero = line.constant(0, one.tensor.dtype, place)
    return line.op("Fill", [shape, zero], place)[0]


def _on_line(
    build: Build,
    one: Value,
    axis: int,
    along: MeshAxes,
    places: Sequence[int],
) -> Value:
    """Returns a value as a line's replicas have it: on one planning axis.

    Its tensor is a new one: what the line has of it, all of one size.

    Args:
        axis: The planning axis that has the mesh axes `along`.
    """

    def local() -> Value:
        shape: list[Any] = list(one.tensor.shape or ())
        others = [*one.placement]
        own = others.pop(axis)
        if isinstance(own, Sharded) and own.rows.over != along:
            others.append(own)
            own = PARTIAL if isinstance(own, PartlySummed) else REPLICATED
        divided: dict[int, list[Sharded]] = {}
        for kind in others:
            if isinstance(kind, Sharded):
                divided.setdefault(kind.axis, []).append(kind)
            elif isinstance(kind, WithHalo):
                start, end = build.mesh.range_at(kind, places[0])
                shape[kind.axis] = end - start
        for number, kinds in divided.items():
            shape[number] = _local_size(build, kinds, places[0])
        if isinstance(own, Sharded) and own.axis in divided:
            own = _within(build, own, divided[own.axis], places[0])
            shape[own.axis] = own.size
        source = one.tensor
        tensor = Tensor(source.node, source.index, source.dtype, source.static)
        tensor.shape = source.shape and tuple(shape)
        tensor.value = source.value
        return Value(tensor, (own,))

    return build.on_line(along, places).keep(("value", one), local)


def _within(
    build: Build, own: Sharded, others: Sequence[Sharded], place: int
) -> Sharded:
    """Returns a kind where other mesh axes divide its blocks, or its rows."""
    outer, inner = own.outer, own.inner
    for other in others:
        part = _local_size(build, [Sharded(other.axis, other.rows)], place)
        is_outer = is_outside(other, own)
        size = outer if is_outer else inner
        blocks = cast(sizes.SizeLike, sizes.divide(size, other.rows.size))
        local = sizes.product([blocks, part])
        outer, inner = (local, inner) if is_outer else (outer, local)
    return dataclasses.replace(own, outer=outer, inner=inner)


def _local_size(
    build: Build, kinds: Sequence[Sharded], place: int
) -> sizes.SizeLike:
    """Returns the size of a replica's part of an axis that kinds divide."""
    if len(kinds) > 1:
        parts = [
            _local_size(build, [Sharded(kind.axis, kind.rows)], place)
            for kind in kinds
        ]
        return sizes.product([undivided(kinds), *parts])
    (kind,) = kinds
    size, over = kind.rows.size, kind.rows.over
    position = build.mesh.index(place, over)
    if isinstance(size, int) and kind.rows.of is None:
        bounds = bounds_of(size, build.mesh.size(over))
        start, end = bounds[position : position + 2]
        if is_of_variable(kind):
            start, end = build.mesh.part_of(kind.rows, place)
        return sizes.product([kind.outer, end - start, kind.inner])

    def symbol() -> sizes.Symbol:
        made = sizes.Symbol(f"{size} at {position}")
        reference = build.sizes.local(kind, place)
        build.keep(("symbol", made), lambda: reference)
        return made

    key = ("part", kind.rows, kind.outer, kind.inner, position)
    return sizes.of(build.keep(key, symbol))
