"""Bounds the gathered weights that are whole at a time.

A gathered weight lives from shortly before its use to shortly after: where
others are used in between, as in the backward pass, it is gathered again. An
all-gather starts when the consumers of the weight before the last one have run,
so that one weight is used, and the next one is on its way.
"""

import dataclasses

from kerasmgpu.partitioner.graph import Node, Tensor
from kerasmgpu.partitioner.ir.instructions import (
    AllGather,
    Instruction,
    Value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.kinds import is_of_variable

_APART = 2
"""Other weights between two uses from which on a weight is gathered again."""


@dataclasses.dataclass(eq=False)
class _Gathered:
    """One gathering of a weight, and the positions of its consumers."""

    gather: AllGather
    uses: list[int]


def order_gathers(program: Lowered) -> None:
    """Gathers weights again where they are used late, and orders all-gathers."""
    if program.replicas.total == 1:
        return
    _gather_again(program)
    found = _gathered(program)
    for number, one in enumerate(found):
        before = [
            other
            for other in found[: max(number - 1, 0)]
            if other.uses[-1] < one.uses[0]
        ]
        if not before:
            continue
        last = max(before, key=lambda other: other.uses[-1])
        consumers = [program.instructions[use] for use in last.uses]
        one.gather.after = (*consumers, found[number - 1].gather)


def bytes_alive(program: Lowered) -> int:
    """Bytes of gathered weights that are whole at most, on one replica."""
    found = _gathered(program)
    most = 0
    for number, one in enumerate(found):
        alive = [
            other
            for position, other in enumerate(found[: number + 1])
            if position >= number - 1 or other.uses[-1] >= one.uses[0]
        ]
        most = max(most, sum(_bytes(other.gather) for other in alive))
    return most


def is_of_weight(gather: AllGather) -> bool:
    """Whether an all-gather is of a sharded variable, and not of activations."""
    (source,) = gather.inputs
    is_static = source.tensor.num_bytes < float("inf")
    return is_static and is_of_variable(source.kind)


def _bytes(gather: AllGather) -> int:
    return int(gather.outputs[0].tensor.num_bytes)


def _gathered(program: Lowered) -> list[_Gathered]:
    """All gatherings of weights that are used, in the order of the program."""
    made: dict[Value, _Gathered] = {}
    for instruction in program.instructions:
        if isinstance(instruction, AllGather) and is_of_weight(instruction):
            made[instruction.outputs[0]] = _Gathered(instruction, [])
    for position, instruction in enumerate(program.instructions):
        for one in dict.fromkeys(instruction.inputs):
            if one in made:
                made[one].uses.append(position)
    return [one for one in made.values() if one.uses]


def _gather_again(program: Lowered) -> None:
    found = _gathered(program)
    used = [(use, one) for one in found for use in one.uses]
    again: dict[int, list[AllGather]] = {}
    for one in found:
        if one.gather.outputs[0] in program.outputs:
            continue
        current, (last, *uses) = one.gather.outputs[0], one.uses
        for use in uses:
            between = {id(other) for at, other in used if last < at < use} - {
                id(one)
            }
            if len(between) >= _APART:
                copy = AllGather(one.gather.inputs, (_copy(current),))
                again.setdefault(use, []).append(copy)
                current = copy.outputs[0]
            if current != one.gather.outputs[0]:
                _replace(
                    program.instructions[use], one.gather.outputs[0], current
                )
            last = use
    result: list[Instruction] = []
    for position, instruction in enumerate(program.instructions):
        result += again.get(position, [])
        result.append(instruction)
    program.instructions = result


def _copy(one: Value) -> Value:
    """Another value of the same tensor."""
    source = one.tensor
    node = Node(f"{source.node.name}/again", source.node.type)
    tensor = Tensor(node, source.index, source.dtype, source.static)
    tensor.shape = source.shape
    node.outputs = [tensor]
    return Value(tensor, one.placement)


def _replace(instruction: Instruction, old: Value, new: Value) -> None:
    instruction.inputs = tuple(
        new if one == old else one for one in instruction.inputs
    )
