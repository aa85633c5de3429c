"""Limits how many gathered weights are whole at a time.

A gathered weight lives from shortly before its use to shortly after. If it is
used again after other weights, as in the backward pass, it is gathered again.
The all-gather of a weight starts when the consumers of the weight two places
before it have run: one weight is in use while the next one is gathered. Each
micro-batch gathers weights in its turn.
"""

import dataclasses
import math

from kerasmgpu.partitioner.ir.instructions import (
    AllGather,
    Instruction,
    Value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.rules.kinds import is_of_variable
from kerasmgpu.partitioner.step.graph import Node, Tensor

_APART = 2
"""A weight is gathered again if this many others are used between two uses."""

_Time = tuple[int, bool, float]
"""When an instruction runs: its phase, whether in turns, and its position."""


@dataclasses.dataclass(eq=False)
class _Gathered:
    """An all-gather of a weight, and when its result is used.

    Attributes:
        uses: The positions of its consumers in the program.
        first: When the first of them runs.
        last: When the last one has run.
    """

    gather: AllGather
    uses: list[int]
    first: _Time
    last: _Time


def order_gathers(program: Lowered) -> None:
    """Gathers weights again for late uses, and orders all-gathers."""
    if program.mesh.total == 1:
        return
    gather_again(program)
    _order(program)


def gather_in_turns(program: Lowered) -> None:
    """Gathers weights in each phase that uses them, and orders all-gathers.

    This concerns weights that micro-batches gather in turns. Also sets the
    phases of their all-gathers.
    """
    given = list(program.instructions)
    for one in _gathered(program):
        if not one.gather.in_turns:
            continue
        (made,) = one.gather.outputs
        phases = {given[use]: program.phases[given[use]] for use in one.uses}
        first, *others = sorted(set(phases.values()))
        program.phases[one.gather] = first
        for phase in others:
            users = [use for use in phases if phases[use] == phase]
            copy = dataclasses.replace(one.gather, outputs=(_copy(made),))
            program.phases[copy] = phase
            program.instructions.insert(
                program.instructions.index(users[0]), copy
            )
            for user in users:
                _replace(user, made, copy.outputs[0])
    _order(program)


def bytes_alive(program: Lowered) -> int:
    """Returns the peak bytes of gathered weights on a replica."""
    found = _gathered(program)
    most = 0
    for number, one in enumerate(found):
        alive = [
            other
            for position, other in enumerate(found[:number])
            # The weight before may be in use while this one is gathered.
            if position >= number - 1 or other.last >= one.first
        ]
        whole = sum(_bytes(other.gather) for other in alive)
        most = max(most, whole + _most_bytes(one.gather))
    return most


def is_of_weight(gather: AllGather) -> bool:
    """Whether an all-gather is of a sharded variable, not of activations."""
    is_static = gather.inputs[0].tensor.num_bytes < float("inf")
    return is_static and is_of_variable(gather.kind_before)


def _bytes(gather: AllGather) -> int:
    return int(gather.outputs[0].tensor.num_bytes)


def _most_bytes(gather: AllGather) -> int:
    """Returns the peak bytes while a weight is gathered, and restored."""
    if gather.restoring is None:
        return _bytes(gather)

    def size(tensor: Tensor) -> int:
        known = math.isfinite(tensor.num_bytes)
        return int(tensor.num_bytes) if known else _bytes(gather)

    # While an operation runs, its inputs and its output are whole.
    return max(
        sum(map(size, (*node.inputs, *node.outputs)))
        for node in gather.restoring.nodes
    )


def _order(program: Lowered) -> None:
    found = _gathered(program)
    for number, one in enumerate(found):
        # All but the weight just before, which may be in use meanwhile.
        before = [
            other
            for other in found[: max(number - 1, 0)]
            if other.last < one.first
        ]
        one.gather.after = ()
        # On a mesh of several axes, what is gathered once, along any of them,
        # is gathered before all turns, and can't wait for what takes them.
        is_before_turns = program.phases and not one.gather.in_turns
        if not before or is_before_turns and program.mesh.num_axes > 1:
            continue
        last = max(before, key=lambda other: other.last)
        consumers = [program.instructions[use] for use in last.uses]
        one.gather.after = (*consumers, found[number - 1].gather)


def _gathered(program: Lowered) -> list[_Gathered]:
    """Returns a record of each used all-gather of a weight, as they run."""
    uses: dict[Value, list[int]] = {}
    gathers: list[AllGather] = []
    for instruction in program.instructions:
        if isinstance(instruction, AllGather) and is_of_weight(instruction):
            uses[instruction.outputs[0]] = []
            gathers.append(instruction)
    for position, instruction in enumerate(program.instructions):
        for one in dict.fromkeys(instruction.inputs):
            if one in uses:
                uses[one].append(position)
    found = []
    for gather in gathers:
        users = uses[gather.outputs[0]]
        times: list[_Time] = [
            (*program.turn_of(program.instructions[use]), use) for use in users
        ]
        if users:
            last = max(times)
            if not gather.in_turns and last[1]:  # Whole until all turns end.
                last = (*last[:2], len(program.instructions))
            found.append(_Gathered(gather, users, min(times), last))
    return sorted(found, key=lambda one: program.turn_of(one.gather))


def gather_again(program: Lowered) -> None:
    """Gathers weights again where others are used between two uses."""
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
                copy = dataclasses.replace(
                    one.gather, outputs=(_copy(current),)
                )
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
    """Returns a value like `one`, of a new tensor with the same properties."""
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
