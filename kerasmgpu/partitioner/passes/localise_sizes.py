"""Workers tell each other their numbers of rows where a size depends on them.

Sizes are arithmetic on the host, which `host_sizes.py` writes where they are
needed. They start from sizes of whole inputs. Of an input that is passed in
shares a worker has its own shares only: where these begin in the batch, and how
many rows there are in all, depends on the shares of the other workers.
"""

from collections.abc import Iterator
from typing import cast

from kerasmgpu.partitioner.ir.instructions import (
    AllGather,
    AllReduce,
    GatherCounts,
    Instruction,
    KnownSizes,
    LocalShape,
    Operation,
    RequireEqualRows,
    Slice,
    Value,
    value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.rules.kinds import (
    COUNTS,
    LocalSizes,
    PerReplica,
    Rows,
    Sharded,
    is_of_variable,
)
from kerasmgpu.partitioner.step import sizes


def localise_sizes(program: Lowered) -> None:
    """Puts a `GatherCounts` in front for each number of rows that is needed.

    It waits for the batch only, and other workers' numbers arrive while the
    first operations run. Bodies of loops and branches take their sizes from the
    function around.
    """
    total = program.mesh.total
    if program.mesh.num == total:
        return
    needed = {
        rows
        for instruction in program.instructions
        for rows in _needed(instruction)
    }
    passed: dict[Rows, Value] = {}
    for one in program.given:
        if is_of_variable(one.kind):
            continue  # Its shares are fixed.
        if isinstance(one.kind, Sharded) and one.kind.rows in needed:
            passed.setdefault(one.kind.rows, one)
    program.instructions[:0] = [
        GatherCounts((one,), (value(one.tensor, COUNTS),), total)
        for one in passed.values()
    ]


def _needed(instruction: Instruction) -> Iterator[Rows]:
    """Rows whose first ones on each replica, or whose number, are needed.

    Not those of which each replica needs its own number only.
    """
    if isinstance(instruction, Region):
        for body in instruction.bodies:
            for inner in body.instructions:
                yield from _needed(inner)
    elif isinstance(instruction, RequireEqualRows):
        if instruction.passed is not None:
            yield instruction.passed
    elif isinstance(instruction, KnownSizes):
        yield from _as_many_as(instruction.outputs[0].tensor.value)
    elif isinstance(instruction, LocalShape):
        yield from _of_shape(instruction.outputs[0])
    elif isinstance(instruction, AllReduce):
        for one in instruction.inputs:
            if isinstance(one.kind, PerReplica):
                yield from _as_many_as(one.kind.rows.size)
    elif isinstance(instruction, (AllGather, Slice)) or _is_written_by_rule(
        instruction
    ):
        for one in (*instruction.inputs, *instruction.outputs):
            yield from _of_value(one)


def _is_written_by_rule(instruction: Instruction) -> bool:
    """Whether an operation is written by its rule, which may need any size."""
    return (
        isinstance(instruction, Operation) and instruction.plan.emit is not None
    )


def _of_shape(shape: Value) -> Iterator[Rows]:
    """Rows for all sizes of a local shape but that of the sharded axis."""
    kind = cast(LocalSizes, shape.kind)
    axis = kind.sharded.axis
    for known in (shape.tensor.value, kind.shape):
        entries = sizes.as_tuple(known)
        yield from _as_many_as(entries[:axis] + entries[axis + 1 :])
    yield from _as_many_as((kind.sharded.outer, kind.sharded.inner))


def _of_value(one: Value) -> Iterator[Rows]:
    """Rows of a value's kind, and for all sizes that are known of it."""
    kind = one.kind.sharded if isinstance(one.kind, LocalSizes) else one.kind
    if isinstance(kind, Sharded):
        yield kind.rows
        yield from _as_many_as(kind.size)
        if kind.rows.of is not None:
            yield kind.rows.of
    yield from _as_many_as(one.tensor.shape)
    yield from _as_many_as(one.tensor.value)


def _as_many_as(known: object) -> Iterator[Rows]:
    """The rows of which there are as many as a symbol of some sizes."""
    for size in sizes.as_tuple(known):
        if isinstance(size, sizes.Size):
            for symbol in size.symbols:
                yield Rows(sizes.of(symbol))
