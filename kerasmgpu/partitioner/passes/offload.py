"""Runs the updates of variables on the host there, next to them.

What takes their handles runs on the host. So do elementwise operations where
that sends nothing more over the link: of Adam, each replica's part of the
gradient goes to the host, and the part of the weight's change comes back. The
weight's subtraction, sums over elements, and communication stay on devices.
"""

import collections

import tensorflow as tf

from kerasmgpu.partitioner.ir.instructions import (
    Alias,
    Instruction,
    Operation,
    Runs,
    ToDevice,
    ToHost,
    Value,
    alike,
)
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.ir.micro_batches import FirstMicroBatchOnly
from kerasmgpu.partitioner.step.records import Trait


def offload(program: Lowered) -> None:
    """Sets `on_host`, and inserts copies between the host and devices."""
    if program.offloaded and not program.mesh.is_anywhere:
        program.on_host = _Choice(program).on_host
        _insert_copies(program)


class _Choice:
    """Chooses the instructions that run on the host."""

    def __init__(self, program: Lowered) -> None:
        self._takers: dict[Value, list[Instruction]] = collections.defaultdict(
            list
        )
        for instruction in program.instructions:
            for one in instruction.inputs:
                self._takers[one].append(instruction)
        self.on_host: set[Instruction] = {
            instruction
            for instruction in program.instructions
            if isinstance(instruction, Operation)
            and not program.offloaded.isdisjoint(instruction.inputs)
        }
        self._returned = set(program.outputs)
        movable = [i for i in program.instructions if _is_movable(i, program)]
        self._take_between(movable)
        self._take_behind(movable)
        self._take_before(movable)

    def _take_between(self, movable: list[Instruction]) -> None:
        """Takes what lies between a read and an assignment on the host."""
        reads = {one for taken in self.on_host for one in taken.outputs}
        later: list[Instruction] = []
        for instruction in movable:
            if not reads.isdisjoint(_large_inputs(instruction)):
                reads.update(instruction.outputs)
                later.append(instruction)
        assigned = {one for taken in self.on_host for one in taken.inputs}
        for instruction in reversed(later):
            if not assigned.isdisjoint(instruction.outputs):
                assigned.update(instruction.inputs)
                self.on_host.add(instruction)

    def _take_behind(self, movable: list[Instruction]) -> None:
        """Takes what needs nothing of devices: several values become one."""
        made = {one for taken in self.on_host for one in taken.outputs}
        for instruction in movable:
            if made.issuperset(_large_inputs(instruction)):
                self.on_host.add(instruction)
                made.update(instruction.outputs)

    def _take_before(self, movable: list[Instruction]) -> None:
        """Takes what only the host needs, if its source is sent instead.

        Of a gradient and its square, the gradient is sent.
        """
        only: set[Instruction] = set()
        for instruction in reversed(movable):
            takers = {
                taker
                for one in instruction.outputs
                for taker in self._takers[one]
            }
            if (
                instruction not in self.on_host
                and len(_large_inputs(instruction)) == 1
                and takers <= self.on_host | only
                and self._returned.isdisjoint(instruction.outputs)
            ):
                only.add(instruction)
        source_of: dict[Value, Value] = {}
        found = collections.defaultdict(list)
        for instruction in movable:
            if instruction in only:
                (one,) = _large_inputs(instruction)
                source = source_of.get(one, one)
                found[source].append(instruction)
                outputs = dict.fromkeys(instruction.outputs, source)
                source_of.update(outputs)
        for source, instructions in found.items():
            sent = [
                one
                for instruction in instructions
                for one in instruction.outputs
                if self._is_sent(one)
            ]
            if len(sent) > 1 or self._is_sent(source):
                self.on_host.update(instructions)

    def _is_sent(self, one: Value) -> bool:
        return not self.on_host.isdisjoint(self._takers[one])


def _is_movable(instruction: Instruction, program: Lowered) -> bool:
    """Whether an instruction is elementwise, on one value per replica."""
    if isinstance(instruction, (Alias, FirstMicroBatchOnly)):
        return bool(instruction.inputs[0].tensor.shape)
    if not isinstance(instruction, Operation):
        return False
    is_of_replica = (
        instruction.runs in (Runs.ON_EACH, Runs.ON_DEVICES)
        or program.mesh.total == 1
        and instruction.home == 0
    )
    return (
        is_of_replica
        and Trait.ELEMENTWISE in instruction.node.traits
        and not instruction.is_guarded
        and bool(_large_inputs(instruction))
    )


def _large_inputs(instruction: Instruction) -> list[Value]:
    """Returns the inputs that have a shape, and that of the output.

    An output that is larger than an input is left to devices: no input counts.
    """
    (made,) = {one.tensor.shape for one in instruction.outputs}
    inputs = [one for one in instruction.inputs if one.tensor.shape != ()]
    return inputs if {one.tensor.shape for one in inputs} == {made} else []


def _insert_copies(program: Lowered) -> None:
    """Inserts copies of values that are made at one place and needed at another.

    Values on the host get tensors of their own there. Scalars and constants are
    left to TensorFlow, which sends what an operation needs.
    """
    made_there: dict[Value, Value] = {}
    given: dict[Value, Value] = {}
    instructions: list[Instruction] = []
    needed = set(program.outputs)
    for instruction in program.instructions:
        if instruction not in program.on_host:
            needed.update(instruction.inputs)
    for instruction in program.instructions:
        if instruction not in program.on_host:
            instructions.append(instruction)
            continue
        inputs = []
        for one in instruction.inputs:
            if one not in made_there and _is_copied(one):
                if one not in given:
                    given[one] = Value(alike(one.tensor), one.placement)
                    copy = ToHost((one,), (given[one],))
                    instructions.append(copy)
                    program.on_host.add(copy)
            inputs.append(made_there.get(one) or given.get(one) or one)
        instruction.inputs = tuple(inputs)
        instructions.append(instruction)
        outputs = list(instruction.outputs)
        for number, one in enumerate(outputs):
            outputs[number] = Value(alike(one.tensor), one.placement)
            made_there[one] = outputs[number]
            if one in needed:
                instructions.append(ToDevice((outputs[number],), (one,)))
        instruction.outputs = tuple(outputs)
    program.instructions = instructions


def _is_copied(one: Value) -> bool:
    """Whether a value has a shape, and is no variable's handle or constant."""
    return (
        one.tensor.shape != ()
        and one.tensor.dtype != tf.resource
        and one.tensor.node.type != "Const"
    )
