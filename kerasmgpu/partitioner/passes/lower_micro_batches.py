"""Decides what runs for each micro-batch, and what once for each device.

Micro-batches of a device share its copies of variables, and send other devices
one part of each sum. Runs only where replicas have several micro-batches.
"""

from kerasmgpu.partitioner.ir.exchanges import LookUp
from kerasmgpu.partitioner.ir.instructions import (
    AllGather,
    AllReduce,
    Communication,
    Instruction,
    JoinAgain,
    Operation,
    ReduceScatter,
    Runs,
    Slice,
    Value,
    alike,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.ir.micro_batches import (
    Accumulate,
    FirstMicroBatchOnly,
    MicroBatchRows,
)
from kerasmgpu.partitioner.ir.sent_types import has_parts
from kerasmgpu.partitioner.passes.order_gathers import is_of_weight
from kerasmgpu.partitioner.rules.kinds import (
    Partial,
    PerReplica,
    is_local,
    is_of_batch,
    is_of_variable,
)
from kerasmgpu.partitioner.step.records import Trait


def lower_micro_batches(program: Lowered) -> None:
    """Splits devices' rows into micro-batches, and merges their parts of sums."""
    if program.mesh.micro_batches == 1:
        return
    rows = [
        MicroBatchRows((one,), (one,))
        for one in program.given
        if program.mesh.num_axes == 1 and is_of_batch(one.kind)
    ]
    _communicate_in_turns(program)
    _lower(program)
    program.instructions = [*rows, *program.instructions]


def _communicate_in_turns(program: Lowered) -> None:
    """Decides which weights and gradients are sent in turns: sets `in_turns`.

    A weight that is gathered once stays whole until the last micro-batch's
    turn, and so does a gradient that is summed before it is scattered. A weight
    that is also needed outside of turns is still gathered once.
    """
    needed = dict.fromkeys(program.outputs)
    for instruction in program.instructions:
        if not _is_in_turn(instruction):
            needed.update(dict.fromkeys(instruction.inputs))
    for instruction in program.instructions:
        if isinstance(instruction, AllGather) and is_of_weight(instruction):
            instruction.in_turns = (
                instruction.outputs[0] not in needed
                and all(
                    has_parts(program.mesh, one) for one in instruction.gathered
                )
                and _is_along_rows(program, instruction)
            )
        elif isinstance(instruction, ReduceScatter):
            kinds = [one.placement[0] for one in instruction.outputs]
            instruction.in_turns = all(
                map(is_of_variable, kinds)
            ) and _is_along_rows(program, instruction)


def _is_along_rows(program: Lowered, instruction: Communication) -> bool:
    """Whether it is along the axis that divides rows among micro-batches."""
    return instruction.axis == 0


def _is_in_turn(instruction: Instruction) -> bool:
    """Whether an instruction will run for each micro-batch."""
    if isinstance(instruction, Operation):
        return (
            instruction.runs is Runs.ON_EACH
            and not _is_on_copies(instruction)
            and _is_local(instruction)
        )
    if isinstance(instruction, Region):
        return instruction.runs is Runs.ON_EACH
    if isinstance(instruction, Communication) and instruction.is_of_rows:
        return True
    return isinstance(instruction, (JoinAgain, LookUp, Slice))


def _lower(program: Lowered) -> None:
    lowering = _Lowering()
    for instruction in program.instructions:
        lowering.add(instruction)
    program.instructions = lowering.instructions
    for region in program.regions:
        for body in region.bodies:
            if body.mesh.micro_batches > 1:
                _lower(body)


def _sends_in_turns(instruction: Instruction) -> bool:
    """Whether each micro-batch sends its own part."""
    if isinstance(instruction, (AllGather, ReduceScatter)):
        if instruction.in_turns:
            return True
    elif isinstance(instruction, LookUp):
        return True
    return isinstance(instruction, Communication) and instruction.is_of_rows


class _Lowering:
    """Rewrites a program's instructions for micro-batches.

    `add` takes them in order and changes them: it sets which run once per
    device, and inserts `Accumulate` where a device adds its micro-batches'
    partial sums before it sends them. `instructions` has the result.
    """

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self._accumulated: dict[Value, Value] = {}

    def add(self, instruction: Instruction) -> None:
        if _sends_in_turns(instruction):
            pass  # Each micro-batch sends its own part.
        elif isinstance(instruction, Communication):
            widens = isinstance(instruction, AllReduce) and instruction.widens
            instruction.inputs = tuple(
                self._of_device(one, widens) for one in instruction.inputs
            )
            self._add_parts(instruction)
            return
        elif isinstance(instruction, Operation) and _is_on_copies(instruction):
            instruction.runs = Runs.ON_DEVICES
            handle, *others = instruction.inputs
            others = [self._of_device(one, False) for one in others]
            instruction.inputs = (handle, *others)
            self._add_read(instruction)
            return
        elif (
            isinstance(instruction, Operation)
            and instruction.runs is Runs.ON_EACH
            and instruction.node.type != "NoOp"
            and not _is_local(instruction)
        ):
            instruction.runs = Runs.ON_DEVICES
        self.instructions.append(instruction)

    def _of_device(self, one: Value, widens: bool) -> Value:
        """Returns a partial value merged on each device; others as they are.

        Adds the `Accumulate` that merges it, once.
        """
        kind, *others = one.placement
        if not isinstance(kind, (Partial, PerReplica)):
            return one
        if one not in self._accumulated:
            placement = (Partial(kind.by), *others)
            made = Value(alike(one.tensor, widens), placement)
            self.instructions.append(Accumulate((one,), (made,), kind.by))
            self._accumulated[one] = made
        return self._accumulated[one]

    def _add_parts(self, instruction: Communication) -> None:
        """Adds communication of devices; its results can be parts of sums.

        They are so along the rows' axis, if it was along another: the device's
        first micro-batch has them.
        """
        outputs, made = list(instruction.outputs), list[Instruction]()
        for number, one in enumerate(outputs):
            if isinstance(one.placement[0], (Partial, PerReplica)):
                outputs[number] = Value(alike(one.tensor), one.placement)
                self._accumulated[one] = outputs[number]
                made.append(FirstMicroBatchOnly((outputs[number],), (one,)))
        instruction.outputs = tuple(outputs)
        self.instructions += [instruction, *made]

    def _add_read(self, operation: Operation) -> None:
        """Adds an operation on the copies of a variable.

        A part of a sum, or of a sharded variable, that it reads on a device is
        left to the device's first micro-batch.
        """
        made: list[Instruction] = []
        outputs = list(operation.outputs)
        for number, one in enumerate(outputs):
            kind = one.placement[0]
            if isinstance(kind, Partial) or is_of_variable(kind):
                outputs[number] = Value(alike(one.tensor), one.placement)
                made.append(FirstMicroBatchOnly((outputs[number],), (one,)))
        operation.outputs = tuple(outputs)
        self.instructions += [operation, *made]


def _is_on_copies(operation: Operation) -> bool:
    """Whether an operation runs once on each device's copy of a variable.

    Reads of what a micro-batch's rows look up run for each micro-batch.
    """
    traits, others = operation.node.traits, operation.inputs[1:]
    return (
        operation.runs is Runs.ON_EACH
        and Trait.COPIED in traits
        and not (
            Trait.READ_ONLY in traits
            and any(is_of_batch(one.placement[0]) for one in others)
        )
    )


def _is_local(operation: Operation) -> bool:
    """Whether a device's micro-batches have different inputs or outputs."""
    return any(
        is_local(one.placement[0])
        for one in (*operation.inputs, *operation.outputs)
    )
