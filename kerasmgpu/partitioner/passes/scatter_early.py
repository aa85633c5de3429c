"""Reduce-scatters gradients as the backward pass makes them.

A gradient is whole on each replica until it is scattered. So it is scattered
right behind the operation that makes it, grouped with others of its mesh axis up
to a number of bytes, rather than where the optimizer needs it, behind the whole
backward pass. The all-reduce of what it sums only partly comes with it.
"""

from collections.abc import Iterable, Iterator
from typing import TypeGuard

from kerasmgpu.partitioner.ir.instructions import (
    AllReduce,
    Instruction,
    ReduceScatter,
    Value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.ir.sent_types import LARGE
from kerasmgpu.partitioner.passes.group_sums import merged_sums
from kerasmgpu.partitioner.rules.kinds import MeshAxes, PartlySummed


def scatter_early(program: Lowered) -> None:
    """Moves reduce-scatters, in groups, behind what makes their inputs."""
    waiting: dict[Value, list[ReduceScatter]] = {}
    between: dict[Value, AllReduce] = {}
    for instruction in program.instructions:
        if isinstance(instruction, ReduceScatter):
            waiting.setdefault(instruction.inputs[0], []).append(instruction)
        elif _is_of_partly_summed(instruction):
            between[instruction.inputs[0]] = instruction
    if not waiting:
        return
    group: list[ReduceScatter] = []
    made: set[Value] = set()
    result: list[Instruction] = []

    def made_by(scatter: ReduceScatter) -> Iterator[Value]:
        """Yields what a reduce-scatter makes, and those of its results."""
        for one in scatter.outputs:
            summed = between[one].outputs if one in between else ()
            for value in (one, *summed):
                yield value
                for behind in waiting.get(value, ()):
                    yield from made_by(behind)

    def flush() -> None:
        """Adds the group; those of its results, along other axes, are next."""
        alike: dict[MeshAxes, list[ReduceScatter]] = {}
        for one in group:
            alike.setdefault(one.along(program.mesh), []).append(one)
        group.clear()
        made.clear()
        for _, scatters in sorted(alike.items()):
            scatter = _merged(scatters)
            result.append(scatter)
            wait_for(scatter.outputs)
            sums = [between[o] for o in scatter.outputs if o in between]
            if sums:
                result.append(merged_sums(sums))
                wait_for(result[-1].outputs)

    def wait_for(values: Iterable[Value]) -> None:
        for value in values:
            for scatter in waiting.get(value, ()):
                group.append(scatter)
                made.update(made_by(scatter))

    def add(values: Iterable[Value]) -> None:
        wait_for(values)
        if sum(one.inputs[0].tensor.num_bytes for one in group) >= LARGE:
            flush()

    add(program.given)
    for instruction in program.instructions:
        if isinstance(instruction, ReduceScatter):
            continue
        if _is_of_partly_summed(instruction):
            continue
        while not made.isdisjoint(instruction.inputs):
            flush()
        result.append(instruction)
        add(instruction.outputs)
    while group:
        flush()
    program.instructions = result


def _is_of_partly_summed(instruction: Instruction) -> TypeGuard[AllReduce]:
    """Whether it sums what a reduce-scatter summed along some axes only."""
    return isinstance(instruction, AllReduce) and instruction.inputs[0].has(
        PartlySummed
    )


def _merged(group: list[ReduceScatter]) -> ReduceScatter:
    return ReduceScatter(
        tuple(one.inputs[0] for one in group),
        tuple(one.outputs[0] for one in group),
        group[0].widens,
    )
