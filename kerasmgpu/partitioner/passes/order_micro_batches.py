"""Assigns instructions that run for each micro-batch to phases.

In a phase a device works through its micro-batches one after the other, and
frees each one's activations before the next one makes its own. A phase ends
where all micro-batches must be done before any continues: at sums and gathers
whose results they use, such as a batch normalisation's moments. A step without
any has one phase.

An instruction that needs no earlier phase, as its inputs are the batch's rows
or draws, is delayed to the phase that first uses it: where a loss is divided by
its mask's sum, that sum is the first phase, and the model's layers run in the
second.
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
    JoinAgain,
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
from kerasmgpu.partitioner.step.records import Trait


def order_micro_batches(program: Lowered) -> None:
    """Assigns a program's instructions to phases: sets `phases` and `after`.

    `phases` has those that run for each micro-batch; `after` has, for each other
    one, the first phase that can use its results. A reduce-scatter in turns
    whose inputs are of several phases is split, one per phase.
    """
    if program.mesh.micro_batches == 1:
        return
    _set_phases(program, {})
    _set_phases(program, _delays(program))


def _set_phases(program: Lowered, delays: Mapping[Instruction, int]) -> None:
    """Assigns each instruction to the first phase in which it can run.

    Sets `phases` and `after`, and splits reduce-scatters; see `_of_one_phase`.

    Args:
        delays: Maps instructions to the first phases that they may run in.
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
    """Yields instructions, with reduce-scatters in turns split by phase.

    Args:
        made: Maps values to the phases from which on they can be used; the
            caller adds an instruction's outputs before it takes the next
            instruction.
    """
    for instruction in instructions:
        if (
            not isinstance(instruction, ReduceScatter)
            or instruction.is_of_rows
            or not instruction.in_turns
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
        # A `NoOp` at the end of a function does nothing.
        is_end = instruction.node.type == "NoOp"
        return instruction.runs is Runs.ON_EACH and not is_end
    if isinstance(instruction, Communication) and instruction.is_of_rows:
        return True
    if isinstance(instruction, (AllGather, ReduceScatter)):
        return instruction.in_turns
    return isinstance(
        instruction,
        (Accumulate, FirstOnly, JoinAgain, LookUp, MicroBatchRows, Slice),
    )


def _ends_phase(instruction: Instruction) -> bool:
    """Whether an instruction's results need all micro-batches of its phase.

    They can be used from the next phase on.
    """
    if isinstance(instruction, Communication):
        if takes_turns(instruction):  # Micro-batches add up what they scatter.
            is_sum = isinstance(instruction, ReduceScatter)
            return is_sum and not instruction.is_of_rows
        if isinstance(instruction, GatherCounts):  # Needs no micro-batch.
            return False
        kinds = (one.placement[0] for one in instruction.inputs)
        return any(isinstance(kind, Sharded) for kind in kinds)
    if isinstance(instruction, Region):
        return instruction.runs is Runs.TOGETHER
    return isinstance(instruction, Accumulate)


def _node(instruction: Instruction) -> Node | None:
    if isinstance(instruction, (LookUp, Operation, Region)):
        return instruction.node
    return None


def _delays(program: Lowered) -> dict[Instruction, int]:
    """Finds instructions of the first phase that only later phases use.

    Sums that no micro-batch reads, such as metrics and gradients, don't count
    as uses: they are summed in the phase in which their parts are computed.

    Returns:
        A map of each of them to the phase that first uses it.
    """
    phases = program.phases
    users = _users(program)
    may_wait = _may_wait(program, users)
    # Sums that no micro-batch reads, and instructions that only they need.
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
        # Sums that no micro-batch reads count from the second phase on only.
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
            # Its inputs are needed a phase before a result that ends a phase.
            used[instruction] = first - _ends_phase(instruction)
    return delays


def _users(program: Lowered) -> dict[Instruction, list[Instruction]]:
    """Maps each instruction to those that take its results or wait for it."""
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
    """Returns instructions of the first phase that can be delayed.

    Neither they nor any instruction that they need has side effects, or merges
    parts of micro-batches.
    """
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
    """Whether a node is stateful; reads of variables in bodies don't count."""
    if not node.bodies:
        return node.is_stateful
    return any(
        _is_stateful(inner) and Trait.READ_ONLY not in inner.traits
        for body in node.bodies
        for inner in body.nodes
    )
