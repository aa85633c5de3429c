"""Runs a program without computing anything, and counts bytes that are alive.

Each value has a buffer with a reference count, as TensorFlow's tensors have:
operations that only give a tensor another shape share its buffer, elementwise
kernels write into an input that nobody else reads, and a buffer is freed after
its last use.
"""

import collections
import dataclasses
import functools
from collections.abc import Collection, Sequence

import tensorflow as tf

from kerasmgpu.memory.executor_order import executor_order
from kerasmgpu.memory.ledger import Buffer, Ledger, VariableBuffer
from kerasmgpu.memory.value_sizes import ValueSizes
from kerasmgpu.partitioner.cost import ASSUMED_SIZE
from kerasmgpu.partitioner.graph import Node, Tensor
from kerasmgpu.partitioner.ir import instructions as ir
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.kinds import Partial, Replicated
from kerasmgpu.partitioner.records import Trait, record

ACTIVATIONS, GRADIENTS, WORKSPACE = "activations", "gradients", "workspace"

_SHARE_BUFFERS = {
    "Bitcast",
    "CheckNumerics",
    "CheckNumericsV2",
    "EnsureShape",
    "ExpandDims",
    "Reshape",
    "Squeeze",
    "TensorListGetItem",
    "TensorListPopBack",
    "TensorListResize",
}
"""Operations whose outputs are their first input's buffer: other shapes of a
tensor, and elements of a list, which hold its whole buffer here."""

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

_PUTS = {"TensorListPushBack", "TensorListSetItem"}

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
        assumed_rounds: Names of loops whose rounds are not known before they
            run, for which `cost.ASSUMED_SIZE` was taken.
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
    """

    def __init__(
        self,
        program: Lowered,
        setting: Setting,
        ledger: Ledger,
        in_backward: bool = False,
    ) -> None:
        self._program = program
        self._setting = setting
        self._sizes = setting.sizes
        self._ledger = ledger
        self._in_backward = in_backward
        self._static = _facts_of(program, min(setting.num_replicas, 2))
        self._uses = self._static.uses
        self._rounds: dict[Node, int] = {}

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
            self._ledger.release(given[position])
        for instruction in self._static.order:
            inputs = [buffers[one] for one in instruction.inputs]
            if isinstance(instruction, ir.Region):
                outputs = self._region(instruction, inputs)
            else:
                outputs = self._outputs(instruction, inputs)
                for buffer in inputs:
                    self._ledger.release(buffer)
            for one, buffer in zip(instruction.outputs, outputs):
                buffers[one] = buffer
                if not self._uses[one] and not buffer.references:
                    self._ledger.release(buffer, 0)
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
                outputs.append(self._shared(inputs[number], one))
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
                return [self._shared(variable.content, outputs[0])]
            if node.type == "AssignVariableOp":
                self._assign(variable, inputs[1])
                return []
        if node.type in _SHARE_BUFFERS or Trait.PASSES in traits:
            shared = zip(outputs, inputs * len(outputs))
            return [self._shared(buffer, one) for one, buffer in shared]
        if node.type == "TensorListFromTensor":
            copied = self._sizes.bytes_of(operation.inputs[0])
            return [self._new(outputs[0], operation, (), copied)]
        if node.type in _MAY_SHARE and self._is_as_large(operation):
            return [self._shared(inputs[0], outputs[0])]
        if node.type in _PUTS:
            holds = (inputs[0], inputs[-1])
            return [self._new(outputs[0], operation, holds)]
        if node.type == "Unpack" and self._is_aligned(outputs[0], node):
            return [self._new(o, operation, (inputs[0],), 0) for o in outputs]
        if (
            outputs
            and outputs[0] in self._static.fused
            and (self._setting.jit_compile)
        ):
            return [self._new(outputs[0], operation, tuple(inputs), 0)]
        if Trait.ELEMENTWISE in traits or node.type in _WRITE_IN_PLACE:
            return [self._written(one, operation, inputs) for one in outputs]
        return [self._new(one, operation) for one in outputs]

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
        buffer = Buffer(num_bytes, self._category(one, instruction), holds)
        return self._ledger.made(buffer, self._uses[one])

    def _shared(self, buffer: Buffer, one: ir.Value) -> Buffer:
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
                self._ledger.recategorize(
                    buffer, self._category(one, instruction)
                )
                return self._shared(buffer, one)
        return self._new(one, instruction)

    def _assign(self, variable: VariableBuffer, value: Buffer) -> None:
        before = variable.content
        if self._setting.divides_updates and (
            value.num_bytes != before.num_bytes
        ):
            # Parts of the new value are gathered.
            value = self._ledger.made(
                Buffer(before.num_bytes, before.category), 0
            )
        value.references += 1
        self._ledger.release(before)
        variable.content = value

    def _bytes_of(self, one: ir.Value, instruction: ir.Instruction) -> int:
        if isinstance(instruction, (ir.KnownSizes, ir.LocalShape, ir.Constant)):
            return 0  # Sizes are on the host; see `constant_bytes`.
        num_bytes = self._sizes.bytes_of(one)
        if (
            self._setting.divides_updates
            and num_bytes >= self._setting.min_shard_bytes
            and isinstance(one.kind, Replicated)
            and self._is_of_sums(instruction)
        ):
            return -(-num_bytes // self._setting.num_replicas)
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
        in_backward = self._in_backward or is_backward(one.tensor.node)
        if not in_backward and one.tensor in self._static.kept:
            return ACTIVATIONS
        return WORKSPACE

    # Loops and branches ------------------------------------------------------

    def _region(self, region: ir.Region, inputs: list[Buffer]) -> list[Buffer]:
        if region.is_loop:
            return self._loop(region, inputs)
        given = inputs[1:]
        peaks = []
        for body in region.bodies:
            ledger = Ledger()
            self._inside(region, body, ledger).run(list(map(_like, given)))
            peaks.append(ledger.peak)
        largest = region.bodies[peaks.index(max(peaks))]
        made = self._inside(region, largest, self._ledger).run(given)
        for buffer in inputs:
            self._ledger.release(buffer)
        return self._handed_on(region, made)

    def _loop(self, region: ir.Region, inputs: list[Buffer]) -> list[Buffer]:
        """Lists that grow are as long as after the last round but one."""
        body = region.bodies[1]
        rounds = self._rounds_of(region)
        grown = self._growth(region, inputs)
        category = ACTIVATIONS
        if self._in_backward or is_backward(region.node):
            category = WORKSPACE
        earlier = {
            number: self._ledger.made(
                Buffer((rounds - 1) * num_bytes, category), 1
            )
            for number, num_bytes in grown.items()
        }
        invariant = {
            number
            for number, (one, other) in enumerate(zip(body.given, body.outputs))
            if one.tensor is other.tensor
        }
        owned = [n for n in range(len(inputs)) if n not in invariant]
        made = self._inside(region, body, self._ledger).run(inputs, owned)
        for number in invariant:
            self._ledger.release(inputs[number])
        for number, buffer in earlier.items():
            whole = Buffer(0, category, (made[number], buffer))
            self._ledger.made(whole, 1)
            self._ledger.release(made[number])
            self._ledger.release(buffer)
            made[number] = whole
        return self._handed_on(region, made)

    def _handed_on(self, region: ir.Region, made: list[Buffer]) -> list[Buffer]:
        """The outputs of a body as those of its loop or branch."""
        for one, buffer in zip(region.outputs, made):
            self._shared(buffer, one)
        for buffer in made:
            self._ledger.release(buffer)
        return made

    def _growth(
        self, region: ir.Region, inputs: list[Buffer]
    ) -> dict[int, int]:
        """Bytes by which each list of a loop grows in a round."""
        given = list(map(_like, inputs))
        body = region.bodies[1]
        made = self._inside(region, body, Ledger()).run(given)
        # Loop variables that were put into a list stay there.
        seen = {
            id(buffer)
            for buffer, one, other in zip(given, body.given, body.outputs)
            if one.tensor is other.tensor or one.tensor.dtype == tf.variant
        }
        grown = {}
        for number, (one, buffer) in enumerate(zip(body.outputs, made)):
            if one.tensor.dtype == tf.variant:
                num_bytes = _bytes_held(buffer, seen)
                if num_bytes:
                    grown[number] = num_bytes
        return grown

    def _inside(
        self, region: ir.Region, body: Lowered, ledger: Ledger
    ) -> "Walk":
        in_backward = self._in_backward or is_backward(region.node)
        return Walk(body, self._setting, ledger, in_backward)

    def _rounds_of(self, region: ir.Region) -> int:
        """Rounds of a loop: a maximum, or the lengths of its lists."""
        found = []
        for tensor in region.node.inputs:
            maker = tensor.node
            if maker in self._rounds:
                found.append(self._rounds[maker])
            elif maker.type == "TensorListReserve":
                found.append(self._known(maker.inputs[1].value))
            elif maker.type == "TensorListFromTensor" and maker.inputs[0].shape:
                found.append(self._known(maker.inputs[0].shape[0]))
        if len(region.node.inputs) > 1:  # Counter, maximum, loop variables.
            found.append(self._known(region.node.inputs[1].value))
        rounds = max((number for number in found if number), default=0)
        if rounds < 1:
            self._setting.assumed_rounds.add(region.node.name)
            rounds = ASSUMED_SIZE
        self._rounds[region.node] = rounds
        return rounds

    def _known(self, size: object) -> int:
        if isinstance(size, tuple):
            size = size[0] if len(size) == 1 else None
        if size is None:
            return 0
        return self._sizes.value_of(size) or 0  # type: ignore[arg-type]


@dataclasses.dataclass
class _Facts:
    """What is known of a program before it runs.

    Attributes:
        given: Its inputs.
        outputs: Its outputs.
        order: Its instructions in the executor's order.
        uses: How often each value is read or returned.
        kept: Tensors of the forward pass that the backward pass reads.
        fused: Values of elementwise operations that only such ones read.
    """

    given: list[ir.Value]
    outputs: list[ir.Value]
    order: list[ir.Instruction]
    uses: "collections.Counter[ir.Value]"
    kept: set[Tensor]
    fused: set[ir.Value]


@functools.lru_cache(maxsize=1024)
def _facts_of(program: Lowered, num_replicas: int) -> _Facts:
    ordered = executor_order(program, num_replicas)
    order, outputs = ordered.instructions, ordered.outputs
    uses = collections.Counter(outputs)
    kept: set[Tensor] = set()
    read_otherwise = set(outputs)
    for instruction in reversed(order):
        uses.update(instruction.inputs)
        node = getattr(instruction, "node", None)
        if node is not None and _keeps(node, kept):
            kept.update(one.tensor for one in instruction.inputs)
        if not _is_elementwise(instruction):
            read_otherwise.update(instruction.inputs)
    fused = {
        one
        for instruction in order
        if _is_elementwise(instruction)
        for one in instruction.outputs
        if uses[one] and one not in read_otherwise
    }
    return _Facts(ordered.given, outputs, order, uses, kept, fused)


def _keeps(node: Node, kept: set[Tensor]) -> bool:
    """Whether what a node reads is alive until the backward pass."""
    return (
        is_backward(node)
        or node.type in _PUTS
        or node.type in _SHARE_BUFFERS
        and not kept.isdisjoint(node.outputs)
    )


def _is_elementwise(instruction: ir.Instruction) -> bool:
    if not isinstance(instruction, ir.Operation):
        return False
    traits = record(instruction.node.type).traits
    return len(instruction.outputs) == 1 and (
        Trait.ELEMENTWISE in traits or instruction.node.type == "BiasAdd"
    )


def is_backward(node: Node) -> bool:
    """Whether a node is of the backward pass, by its name."""
    return "gradient_tape" in node.name or "gradients/" in node.name


def constant_bytes(program: Lowered) -> int:
    """Bytes of a program's constants, which stay on the device."""
    return sum(
        int(one.outputs[0].tensor.num_bytes)
        for one in program.all_instructions()
        if isinstance(one, ir.Constant)
        and one.outputs[0].tensor.num_bytes < float("inf")
    )


def _like(buffer: Buffer) -> Buffer:
    """A buffer of the same size for a walk of which only the peak counts."""
    copy = Buffer(buffer.num_bytes, buffer.category)
    if isinstance(buffer, VariableBuffer):
        copy = VariableBuffer(_like(buffer.content))
    copy.references = 2
    return copy


def _bytes_held(buffer: Buffer, seen: set[int]) -> int:
    """Bytes of a list's elements, but of those that were seen."""
    total, waiting = 0, [buffer]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        total += one.num_bytes
        waiting += one.holds
    return total
