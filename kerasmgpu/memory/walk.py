"""Runs a program without computing anything, and counts bytes that are alive.

Each value has a buffer with a reference count, as TensorFlow's tensors have:
operations that only give a tensor another shape share its buffer, elementwise
kernels write into an input that nobody else reads, and a buffer is freed after
its last use.
"""

import dataclasses
from collections.abc import Collection, Sequence

from kerasmgpu.flops.recomputation import is_backward
from kerasmgpu.memory import loops
from kerasmgpu.memory.ledger import Buffer, Ledger, VariableBuffer
from kerasmgpu.memory.program_facts import (
    ACTIVATIONS,
    GRADIENTS,
    PUTS,
    SHARE_BUFFERS,
    WORKSPACE,
    facts_of,
)
from kerasmgpu.memory.value_sizes import ValueSizes
from kerasmgpu.partitioner.ir import instructions as ir
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.rules.kinds import Partial, Replicated
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait, record

_WRITE_IN_PLACE = {
    "BiasAdd",
    "LogSoftmax",
    "Select",
    "Softmax",
    "SoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropyWithLogits",
}
"""Operations that are not elementwise, but write into an input like those."""

_MAY_SHARE = {
    "BroadcastTo",
    "Max",
    "Mean",
    "Min",
    "Prod",
    "Slice",
    "StridedSlice",
    "Sum",
    "Tile",
}
"""Operations that share their input's buffer if they leave its elements as they
are: sums along axes of one element, slices of everything."""

_ALIGNMENT = 64
"""Bytes: parts of a tensor that begin at a multiple share its buffer."""


@dataclasses.dataclass
class Setting:
    """What a walk is for.

    Attributes:
        sizes: `ValueSizes`.
        num_replicas: Integer.
        divides_updates: Whether summed gradients, and what the optimizer makes
            of them, are divided by the number of replicas.
        min_shard_bytes: Integer, bytes from which on a value is divided.
        jit_compile: Whether XLA fuses elementwise operations.
        assumed_rounds: `"rounds of NAME"` for each loop whose rounds are not
            known before it runs, for which `cost.ASSUMED_SIZE` was taken.
    """

    sizes: ValueSizes
    num_replicas: int
    divides_updates: bool = False
    min_shard_bytes: int = 0
    jit_compile: bool = False
    assumed_rounds: set[str] = dataclasses.field(default_factory=set)


class Walk:
    """One function of a program.

    Args:
        program: `ir.lowered.Lowered`.
        setting: `Setting`.
        ledger: `Ledger` that counts.
        in_backward: Whether it is a body of a loop of the backward pass.

    Attributes:
        setting, ledger: See above.
        rounds: Rounds of the loops that it went through.
    """

    def __init__(
        self,
        program: Lowered,
        setting: Setting,
        ledger: Ledger,
        in_backward: bool = False,
    ) -> None:
        self._program = program
        self.setting = setting
        self._sizes = setting.sizes
        self.ledger = ledger
        self._in_backward = in_backward
        self._static = facts_of(program, min(setting.num_replicas, 2))
        self._uses = self._static.uses
        self.rounds: dict[Node, int] = {}

    def run(
        self, given: Sequence[Buffer], owned: Collection[int] = ()
    ) -> list[Buffer]:
        """Runs it.

        Args:
            given: Buffers of its inputs.
            owned: Positions of inputs on which the caller drops its reference.

        Returns:
            Buffers of its outputs, with a reference each.
        """
        buffers: dict[ir.Value, Buffer] = {}
        for one, buffer in zip(self._static.given, given):
            buffer.references += self._uses[one]
            buffers[one] = buffer
        for position in owned:
            self.ledger.release(given[position])
        for instruction in self._static.order:
            inputs = [buffers[one] for one in instruction.inputs]
            if isinstance(instruction, Region):
                outputs = loops.region(self, instruction, inputs)
            else:
                outputs = self._outputs(instruction, inputs)
                for buffer in inputs:
                    self.ledger.release(buffer)
            for one, buffer in zip(instruction.outputs, outputs):
                buffers[one] = buffer
                if not self._uses[one] and not buffer.references:
                    self.ledger.release(buffer, 0)
        return [buffers[one] for one in self._static.outputs]

    # Instructions ------------------------------------------------------------

    def _outputs(
        self, instruction: ir.Instruction, inputs: list[Buffer]
    ) -> list[Buffer]:
        if isinstance(instruction, ir.Operation):
            return self._operation(instruction, inputs)
        shares = isinstance(instruction, (ir.Alias, ir.FirstOnly, ir.Broadcast))
        if isinstance(instruction, (ir.Slice, ir.AllGather, ir.AllReduce)):
            # Shares of a batch are on their devices before the step.
            shares = instruction.inputs[0].tensor.node.type == "Input"
        outputs = []
        for number, one in enumerate(instruction.outputs):
            if shares:
                outputs.append(self.shared(inputs[number], one))
            elif isinstance(instruction, ir.AllReduce):
                outputs.append(self._written(one, instruction, inputs))
            else:
                outputs.append(self._new(one, instruction))
        return outputs

    def _operation(
        self, operation: ir.Operation, inputs: list[Buffer]
    ) -> list[Buffer]:
        node, outputs = operation.node, operation.outputs
        traits = record(node.type).traits
        if inputs and isinstance(inputs[0], VariableBuffer):
            variable = inputs[0]
            if Trait.READS in traits:
                return [self.shared(variable.content, outputs[0])]
            if node.type == "AssignVariableOp":
                self._assign(variable, inputs[1])
                return []
        if self._shares_first_input(operation):
            shared = zip(outputs, inputs * len(outputs))
            return [self.shared(buffer, one) for one, buffer in shared]
        held = self._held(operation, inputs)
        if held:
            return [self._new(one, operation, held, 0) for one in outputs]
        if Trait.ELEMENTWISE in traits or node.type in _WRITE_IN_PLACE:
            return [self._written(one, operation, inputs) for one in outputs]
        if node.type == "TensorListFromTensor":
            copied = self._sizes.bytes_of(operation.inputs[0])
            return [self._new(outputs[0], operation, (), copied)]
        return [self._new(one, operation) for one in outputs]

    def _shares_first_input(self, operation: ir.Operation) -> bool:
        """Whether the outputs are the first input's buffer."""
        node = operation.node
        return (
            node.type in SHARE_BUFFERS
            or Trait.PASSES in record(node.type).traits
            or (node.type in _MAY_SHARE and self._is_as_large(operation))
        )

    def _held(
        self, operation: ir.Operation, inputs: list[Buffer]
    ) -> tuple[Buffer, ...]:
        """Buffers that outputs without bytes of their own keep alive.

        A list holds its elements, parts of a tensor hold it, and of what XLA
        fuses the operands are read when the result is needed.
        """
        node, outputs = operation.node, operation.outputs
        if node.type in PUTS:
            return inputs[0], inputs[-1]
        if node.type == "Unpack" and self._is_aligned(outputs[0], node):
            return (inputs[0],)
        if self.setting.jit_compile and not self._static.fused.isdisjoint(
            outputs
        ):
            return tuple(inputs)
        return ()

    def _is_as_large(self, operation: ir.Operation) -> bool:
        (made,), given = operation.outputs, operation.inputs[0]
        return self._sizes.bytes_of(made) == self._sizes.bytes_of(given) > 0

    def _is_aligned(self, one: ir.Value, node: Node) -> bool:
        return not node.attr("axis") and not (
            self._sizes.bytes_of(one) % _ALIGNMENT
        )

    def _new(
        self,
        one: ir.Value,
        instruction: ir.Instruction,
        holds: tuple[Buffer, ...] = (),
        num_bytes: int | None = None,
    ) -> Buffer:
        """A new buffer for a value."""
        if num_bytes is None:
            num_bytes = self._bytes_of(one, instruction)
        category = self._category(one, instruction)
        scope, _, _ = one.tensor.node.name.rpartition("/")
        buffer = Buffer(num_bytes, category, holds, scope)
        return self.ledger.made(buffer, self._uses[one])

    def shared(self, buffer: Buffer, one: ir.Value) -> Buffer:
        """An existing buffer for one more value."""
        buffer.references += self._uses[one]
        return buffer

    def _written(
        self,
        one: ir.Value,
        instruction: ir.Instruction,
        inputs: list[Buffer],
    ) -> Buffer:
        """The buffer of an input that nobody else reads, or a new one."""
        num_bytes = self._bytes_of(one, instruction)
        for given, buffer in zip(instruction.inputs, inputs):
            if (
                buffer.num_bytes == num_bytes
                and given.tensor.dtype == one.tensor.dtype
                and buffer.references == inputs.count(buffer)
                and not buffer.holds
            ):
                self.ledger.recategorize(
                    buffer, self._category(one, instruction)
                )
                return self.shared(buffer, one)
        return self._new(one, instruction)

    def _assign(self, variable: VariableBuffer, value: Buffer) -> None:
        before = variable.content
        if self.setting.divides_updates and (
            value.num_bytes != before.num_bytes
        ):
            # Parts of the new value are gathered.
            value = self.ledger.made(
                Buffer(before.num_bytes, before.category), 0
            )
        value.references += 1
        self.ledger.release(before)
        variable.content = value

    def _bytes_of(self, one: ir.Value, instruction: ir.Instruction) -> int:
        if isinstance(instruction, (ir.KnownSizes, ir.LocalShape, ir.Constant)):
            return 0  # Sizes are on the host; see `constant_bytes`.
        num_bytes = self._sizes.bytes_of(one)
        if (
            self.setting.divides_updates
            and num_bytes >= self.setting.min_shard_bytes
            and isinstance(one.kind, Replicated)
            and self._is_of_sums(instruction)
        ):
            return -(-num_bytes // self.setting.num_replicas)
        return num_bytes

    def _is_of_sums(self, instruction: ir.Instruction) -> bool:
        if isinstance(instruction, ir.AllReduce):
            return True
        return (
            isinstance(instruction, ir.Operation)
            and self._program.levels.get(instruction.node, 0) > 0
        )

    def _category(self, one: ir.Value, instruction: ir.Instruction) -> str:
        if isinstance(instruction, ir.AllReduce) or (
            isinstance(one.kind, Partial) and one.tensor.dtype.is_floating
        ):
            return GRADIENTS
        in_backward = self.is_backward(one.tensor.node)
        if not in_backward and one.tensor in self._static.kept:
            return ACTIVATIONS
        return WORKSPACE

    def is_backward(self, node: Node) -> bool:
        """Whether a node is of the backward pass."""
        return self._in_backward or is_backward(node)

    def inside(self, region: Region, body: Lowered, ledger: Ledger) -> "Walk":
        """The walk of a body of a loop or branch."""
        return Walk(body, self.setting, ledger, self.is_backward(region.node))
