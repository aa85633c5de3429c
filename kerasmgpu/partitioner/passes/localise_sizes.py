"""Gathers the workers' numbers of rows where a size depends on them.

Sizes are arithmetic on the host, which `host_sizes.py` writes where they are
needed, from the sizes of whole inputs. If an input is passed in shares, a
worker has only its own: the row at which each begins in the batch, and the
number of all rows, depend on the shares of the other workers.
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
    """Inserts `GatherCounts` instructions at the start of the program.

    There is one for each number of rows (inputs with equal rows share it), if a
    size depends on other workers' shares of them. It waits for the batch only,
    so that other workers' numbers arrive while the first operations run. Bodies
    of loops and branches take their sizes from the enclosing function. With one
    worker nothing is inserted.
    """
    total = program.mesh.total
    if program.mesh.num == total or program.mesh.num_axes > 1:
        return  # On a mesh of several axes, batches are passed whole.
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
    """Yields `Rows` whose total, or shares' starts, an instruction needs.

    `Rows` of which each replica needs only its own number are left out.
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
    elif (
        isinstance(instruction, (AllGather, Slice))
        # The writer of an operation with an `Emit` can use any size.
        or isinstance(instruction, Operation)
        and instruction.plans[0].emit is not None
    ):
        for one in (*instruction.inputs, *instruction.outputs):
            yield from _of_value(one)


def _of_shape(shape: Value) -> Iterator[Rows]:
    """Yields the `Rows` in sizes of a local shape, except its sharded axis."""
    kind = cast(LocalSizes, shape.kind)
    axis = kind.sharded.axis
    for known in (shape.tensor.value, kind.shape):
        entries = sizes.as_tuple(known)
        yield from _as_many_as(entries[:axis] + entries[axis + 1 :])
    yield from _as_many_as((kind.sharded.outer, kind.sharded.inner))


def _of_value(one: Value) -> Iterator[Rows]:
    """Yields the `Rows` of a value's kind, and those its sizes depend on."""
    kind = one.kind.sharded if isinstance(one.kind, LocalSizes) else one.kind
    if isinstance(kind, Sharded):
        yield kind.rows
        yield from _as_many_as(kind.size)
        if kind.rows.of is not None:
            yield kind.rows.of
    yield from _as_many_as(one.tensor.shape)
    yield from _as_many_as(one.tensor.value)


def _as_many_as(known: object) -> Iterator[Rows]:
    """Yields, for each symbol in some sizes, `Rows` whose number it is.

    Args:
        known: A size or a tuple of sizes; anything else has no symbols.
    """
    for size in sizes.as_tuple(known):
        if isinstance(size, sizes.Size):
            for symbol in size.symbols:
                yield Rows(sizes.of(symbol))
