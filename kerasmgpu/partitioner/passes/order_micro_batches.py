"""Gives what runs for each micro-batch a phase: micro-batches take turns in it.

What all micro-batches must have done before any goes on ends a phase: sums and
gathers whose results they use, such as a batch normalisation's moments. In a
phase a device works through its micro-batches one after the other, and frees
each one's activations before the next one makes its own. A step without such a
meeting has one phase.

What is computed from the batch's rows, or drawn, without need of an earlier
phase comes in the phase that first uses it: where a loss is divided by its mask's
sum, that sum is a phase, and the model's layers run in the one behind it.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from kerasmgpu.partitioner.ir.exchanges import LookUp
from kerasmgpu.partitioner.ir.instructions import (
    AllGather,
    Communication,
    FirstOnly,
    GatherCounts,
    Instruction,
    Operation,
    ReduceScatter,
    Runs,
    Slice,
    Value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.ir.micro_batches import (
    Accumulate,
    MicroBatchRows,
)
from kerasmgpu.partitioner.rules.kinds import Sharded
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait, record


def order_micro_batches(program: Lowered) -> None:
    """Sets the phases of a program; see `ir.lowered.Lowered.phases`."""
    if program.mesh.micro_batches == 1:
        return
    _set_phases(program, {})
    _set_phases(program, _delays(program))


def _set_phases(program: Lowered, delays: Mapping[Instruction, int]) -> None:
    """Gives instructions the first phase that they can be in.

    Args:
        program: The program.
        delays: Maps instructions to phases that they wait for.
    """
    phases: dict[Instruction, int] = {}
    after: dict[Instruction, int] = {}
    made: dict[Value, int] = {}
    done: dict[Node, tuple[int, bool]] = {}
    ordered: list[Instruction] = []
    for instruction in _of_one_phase(program.instructions, made):
        ordered.append(instruction)
        in_turn = takes_turns(instruction)
        before = [made.get(one, 0) for one in instruction.inputs]
        node = _node(instruction)
        for control in node.controls if node else ():
            if control in done:
                earlier, took_turns = done[control]
                before.append(earlier + (took_turns and not in_turn))
        phase = max([delays.get(instruction, 0), *before])
        made |= dict.fromkeys(
            instruction.outputs, phase + _ends_phase(instruction)
        )
        if in_turn:
            phases[instruction] = phase
        else:
            after[instruction] = phase + _ends_phase(instruction)
        if node:
            done[node] = phase, in_turn
    program.instructions = ordered
    program.phases, program.after = phases, after


def _of_one_phase(
    instructions: Iterable[Instruction], made: Mapping[Value, int]
) -> Iterator[Instruction]:
    """Divides gradients that are scattered together by the phase they are of.

    Args:
        instructions: The instructions.
        made: The phase that each value is made in, once its instruction has been
            taken.
    """
    for instruction in instructions:
        if not isinstance(instruction, ReduceScatter) or not takes_turns(
            instruction
        ):
            yield instruction
            continue
        pairs = list(zip(instruction.inputs, instruction.outputs))
        for phase in sorted({made.get(one, 0) for one in instruction.inputs}):
            own = [pair for pair in pairs if made.get(pair[0], 0) == phase]
            inputs, outputs = zip(*own)
            yield dataclasses.replace(
                instruction, inputs=inputs, outputs=outputs
            )


def takes_turns(instruction: Instruction) -> bool:
    """Whether an instruction runs for each micro-batch."""
    if isinstance(instruction, (Operation, Region)):
        # What ends a function does nothing.
        is_end = instruction.node.type == "NoOp"
        return instruction.runs is Runs.ON_EACH and not is_end
    if isinstance(instruction, (AllGather, ReduceScatter)):
        return instruction.in_turns
    return isinstance(
        instruction, (Accumulate, FirstOnly, LookUp, MicroBatchRows, Slice)
    )


def _ends_phase(instruction: Instruction) -> bool:
    """Whether an instruction needs what all micro-batches of a phase made."""
    if isinstance(instruction, Communication):
        if takes_turns(instruction):  # Micro-batches add up what they scatter.
            return isinstance(instruction, ReduceScatter)
        if isinstance(instruction, GatherCounts):  # Of the batch as it comes.
            return False
        return any(isinstance(one.kind, Sharded) for one in instruction.inputs)
    if isinstance(instruction, Region):
        return instruction.runs is Runs.TOGETHER
    return isinstance(instruction, Accumulate)


def _node(instruction: Instruction) -> Node | None:
    if isinstance(instruction, (LookUp, Operation, Region)):
        return instruction.node
    return None


def _delays(program: Lowered) -> dict[Instruction, int]:
    """Delays instructions of the first phase to the first one that uses results.

    Sums that no micro-batch reads, such as metrics and gradients, don't count as
    uses: they are in the phase of what they are computed from.

    Returns:
        The later phase of each instruction that is delayed.
    """
    phases = program.phases
    users = _users(program)
    may_wait = _may_wait(program, users)
    is_last: set[Instruction] = set()
    used: dict[Instruction, int] = {}
    delays: dict[Instruction, int] = {}
    for instruction in reversed(program.instructions):
        followers = users[instruction]
        in_turn = instruction in phases
        computes = in_turn and not _ends_phase(instruction)
        if (
            is_last.issuperset(followers)
            and (computes or phases.keys().isdisjoint(followers))
            and not (in_turn and _has_effect(instruction))
        ):
            is_last.add(instruction)
        first = min(
            (
                used[one]
                for one in followers
                if one in used and (one not in is_last or used[one])
            ),
            default=None,
        )
        if in_turn:
            used[instruction] = phases[instruction]
            if instruction in may_wait and first:
                used[instruction] = delays[instruction] = first
        elif first is not None:
            used[instruction] = first - _ends_phase(instruction)
    return delays


def _users(program: Lowered) -> dict[Instruction, list[Instruction]]:
    """For each instruction, those that take its results or wait for it."""
    producer: dict[Value | Node, Instruction] = {}
    users: dict[Instruction, list[Instruction]] = {}
    for instruction in program.instructions:
        users[instruction] = []
        node = _node(instruction)
        needs = [*instruction.inputs, *(node.controls if node else ())]
        sources = [producer[one] for one in needs if one in producer]
        for source in dict.fromkeys(sources):
            users[source].append(instruction)
        producer |= dict.fromkeys(instruction.outputs, instruction)
        if node:
            producer[node] = instruction
    return users


def _may_wait(
    program: Lowered, users: Mapping[Instruction, Iterable[Instruction]]
) -> set[Instruction]:
    """Instructions of the first phase without side effects on their way to it."""
    phases = program.phases
    kept: set[Instruction] = set()
    found: set[Instruction] = set()
    for instruction in program.instructions:
        if instruction not in phases:
            continue
        if (
            phases[instruction]
            or instruction in kept
            or isinstance(instruction, (Accumulate, ReduceScatter))
            or _has_effect(instruction)
        ):
            kept.update(users[instruction])
        else:
            found.add(instruction)
    return found


def _has_effect(instruction: Instruction) -> bool:
    node = _node(instruction)
    return node is not None and (bool(node.controls) or _is_stateful(node))


def _is_stateful(node: Node) -> bool:
    """Whether a node has side effects; a loop has none if it only reads variables."""
    if not node.bodies:
        return node.is_stateful
    return any(
        _is_stateful(inner) and Trait.READ_ONLY not in record(inner.type).traits
        for body in node.bodies
        for inner in body.nodes
    )
