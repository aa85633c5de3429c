"""Gives what runs for each micro-batch a phase: micro-batches take turns in it.

What all micro-batches must have done before any goes on ends a phase: sums and
gathers whose results they use, such as a batch normalisation's moments. In a
phase a device works through its micro-batches one after the other, and frees
each one's activations before the next one makes its own. A step without such a
meeting has one phase.

What is computed from the batch's rows, or drawn, without need of an earlier
phase comes in the phase that first uses it.
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


def order_micro_batches(program: Lowered) -> None:
    """Sets the phases of a program; see `ir.lowered.Lowered.phases`."""
    if program.mesh.micro_batches == 1:
        return
    phases: dict[Instruction, int] = {}
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
        phase = max(before, default=0)
        made |= dict.fromkeys(
            instruction.outputs, phase + _ends_phase(instruction)
        )
        if in_turn:
            phases[instruction] = phase
        else:
            program.after[instruction] = phase + _ends_phase(instruction)
        if node:
            done[node] = phase, in_turn
    program.instructions = ordered
    _delay(program, phases)
    program.phases = phases


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


def _delay(program: Lowered, phases: dict[Instruction, int]) -> None:
    """Moves what needs no earlier phase to the phase that first uses it."""
    producer = {
        one: instruction
        for instruction in program.instructions
        for one in instruction.outputs
    }
    used: dict[Instruction, int] = {}
    may_wait: dict[Instruction, bool] = {}
    for instruction in program.instructions:
        may_wait[instruction] = (
            instruction in phases
            and phases[instruction] == 0
            and not isinstance(instruction, (Accumulate, ReduceScatter))
            and not _has_effect(instruction)
            and all(
                may_wait[producer[one]]
                for one in instruction.inputs
                if producer.get(one) in phases
                and producer[one] is not instruction
            )
        )
    for instruction in reversed(program.instructions):
        if may_wait[instruction]:
            phases[instruction] = used.get(instruction, 0)
        phase = phases.get(instruction, 0)
        for one in instruction.inputs:
            source = producer.get(one)
            if source is not None and source is not instruction:
                used[source] = min(used.get(source, phase), phase)


def _has_effect(instruction: Instruction) -> bool:
    node = _node(instruction)
    return node is not None and (
        node.is_stateful or bool(node.bodies) or bool(node.controls)
    )
