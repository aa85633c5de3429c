"""Simulates the memory of a written function: computes nothing, counts bytes.

Each value has a buffer with a reference count, as TensorFlow's tensors have:
operations that only reshape a tensor share its buffer, elementwise kernels
write into an input that nothing else reads, and a buffer is freed after its
last use.
"""

from collections.abc import Collection, Mapping, Sequence

import tensorflow as tf

from kerasmgpu.memory import kernels, loops
from kerasmgpu.memory.executor_order import in_order
from kerasmgpu.memory.inferred_shapes import Static
from kerasmgpu.memory.ledger import (
    Buffer,
    Ledger,
    VariableBuffer,
    recategorize,
    release,
)
from kerasmgpu.memory.written_function import (
    Reference,
    WrittenFunction,
    WrittenNode,
)
from kerasmgpu.memory.written_step import (
    ACTIVATIONS,
    CONSTANTS,
    WORKSPACE,
    WrittenStep,
)
from kerasmgpu.partitioner.step.records import Trait


class Walk:
    """Walks through one function of a step, in the order of execution.

    Args:
        in_backward: Whether the function is a body of a node of the backward
            pass.
    """

    def __init__(
        self,
        step: WrittenStep,
        function: WrittenFunction,
        ledgers: Mapping[str, Ledger],
        in_backward: bool = False,
    ) -> None:
        self.step = step
        self.function = function
        self.ledgers = ledgers
        self._nodes = function.nodes
        self._in_backward = in_backward
        self._memories = [step.memory_of(node) for node in function.nodes]
        self._buffers: dict[Reference, Buffer] = {}
        self._copies: dict[tuple[Reference, str], Buffer] = {}
        self._readers = self._copies_to_make()
        self._inputs: dict[int, list[Buffer]] = {}
        self._scratch: dict[int, Buffer] = {}

    def run(
        self, given: Sequence[Buffer], owned: Collection[int] = ()
    ) -> list[Buffer]:
        """Walks through the function, and counts its bytes in the ledgers.

        Args:
            owned: Positions of arguments to which the caller gives up its
                reference.

        Returns:
            Buffers of the function's results, with a reference each.
        """
        for number, buffer in enumerate(given):
            buffer.references += self._nodes[number].uses[0]
            self._buffers[number, 0] = buffer
        for node in self._nodes:
            if node.type.startswith(kernels.COPY_ON_READ):
                changed = self._buffers.get(node.inputs[0])
                if isinstance(changed, VariableBuffer):
                    changed.is_copied = True
        for position in owned:
            release(given[position])
        places = None
        if self.step.has_slots_on_host:  # Updates don't wait for devices.
            places = [memory or self.step.home for memory in self._memories]
        for event, number in in_order(self._nodes, places):
            if event == "finish":
                self._finish(number)
            elif number >= len(given):
                self._start(number)
        return [self._buffers[one] for one in self.function.returned]

    def inside(
        self,
        node: WrittenNode,
        name: str,
        given: Sequence[Static],
        ledgers: Mapping[str, Ledger] | None = None,
    ) -> "Walk":
        """Returns a `Walk` of the function `name`, a body of `node`."""
        return Walk(
            self.step,
            self.step.function(name, given),
            self.ledgers if ledgers is None else ledgers,
            self.is_backward(node),
        )

    def statics(self, node: WrittenNode) -> list[Static]:
        """Returns the `Static`s of a node's inputs."""
        return [self._nodes[n].outputs[index] for n, index in node.inputs]

    def is_backward(self, node: WrittenNode) -> bool:
        """Whether a node is of the backward pass."""
        return self._in_backward or node.is_backward

    # Nodes -------------------------------------------------------------------

    def _copies_to_make(self) -> dict[Reference, dict[str, int]]:
        """Counts each output's reads from each memory other than its own.

        Returns `{output: {memory: reads}}`. Variables, lists and strings aren't
        copied.
        """
        found: dict[Reference, dict[str, int]] = {}
        for number, node in enumerate(self._nodes):
            memory = self._memories[number]
            for one in node.inputs:
                own = self._memories[one[0]]
                if memory in (own, "") or own == "":
                    continue
                dtype = self._nodes[one[0]].outputs[one[1]].dtype
                if dtype not in (tf.resource, tf.variant, tf.string):
                    counts = found.setdefault(one, {})
                    counts[memory] = counts.get(memory, 0) + 1
        return found

    def _start(self, number: int) -> None:
        """Allocates a node's outputs and scratch memory; walks its bodies."""
        node, memory = self._nodes[number], self._memories[number]
        inputs = [
            self._copies.get((one, memory), self._buffers[one])
            for one in node.inputs
        ]
        self._inputs[number] = inputs
        bodies = self.step.bodies(node)
        if bodies and node.name not in self.step.temporary:
            self._inputs[number] = []
            made = loops.region(self, node, bodies, inputs)
            for index, buffer in enumerate(made):
                buffer.references += self._own_uses(number, index) - 1
        else:
            made = self._outputs(number, inputs)
        for index, buffer in enumerate(made):
            self._buffers[number, index] = buffer
        scratch = self.step.scratch(self.function, node)
        if scratch:
            ledger = self.ledgers[memory]
            self._scratch[number] = ledger.made(Buffer(scratch, WORKSPACE), 1)

    def _finish(self, number: int) -> None:
        """Copies a node's outputs to other memories; releases its inputs."""
        node = self._nodes[number]
        if number in self._scratch:
            release(self._scratch.pop(number))
        for index in range(len(node.outputs)):
            one = number, index
            if one not in self._buffers:
                continue
            buffer = self._buffers[one]
            for memory, count in self._readers.get(one, {}).items():
                num_bytes = node.outputs[index].num_bytes
                copy = Buffer(num_bytes, buffer.category, (), buffer.scope)
                self._copies[one, memory] = self.ledgers[memory].made(
                    copy, count
                )
                release(buffer)
        for buffer in self._inputs.pop(number, ()):
            release(buffer)
        for index in range(len(node.outputs)):
            made = self._buffers.get((number, index))
            if made is not None and made.references == 0:
                release(made, 0)

    def _own_uses(self, number: int, index: int) -> int:
        """Returns an output's references: local reads and copies elsewhere."""
        copies = self._readers.get((number, index), {})
        uses = self._nodes[number].uses[index]
        return uses - sum(copies.values()) + len(copies)

    # Kernels -----------------------------------------------------------------

    def _outputs(self, number: int, inputs: list[Buffer]) -> list[Buffer]:
        node, given = self._nodes[number], self.statics(self._nodes[number])
        if inputs and isinstance(inputs[0], VariableBuffer):
            return self._of_variable(number, inputs[0], inputs)
        numbers = range(len(node.outputs))
        if kernels.shares_first_input(node, given):
            shared = [inputs[kernels.data_input(node)] for _ in numbers]
            if node.type == "IdentityN":
                shared = inputs
            return [
                self._shared(one, number, n) for n, one in enumerate(shared)
            ]
        held = self._held(number, inputs, given)
        if held:
            made = [self._new(number, index, held, 0) for index in numbers]
            for buffer in made:
                buffer.is_part = kernels.is_view(node, given)
            return made
        if node.type == "TensorListFromTensor":
            return [self._new(number, 0, (), given[0].num_bytes)]
        made = []
        for index in numbers:
            free = None
            if kernels.writes_in_place(node):
                free = self._free_input(node, index, inputs, given)
            if free is None:
                made.append(self._new(number, index))
            else:
                recategorize(free, self._category(number, index))
                made.append(self._shared(free, number, index))
        return made

    def _of_variable(
        self, number: int, variable: VariableBuffer, inputs: list[Buffer]
    ) -> list[Buffer]:
        """Returns the output buffers of an operation on a variable.

        If it assigns the variable, replaces its content.
        """
        node = self._nodes[number]
        is_read = Trait.READS in kernels.traits_of(node)
        if node.type == "Identity" or (is_read and not variable.is_copied):
            one = variable if node.type == "Identity" else variable.content
            return [self._shared(one, number, 0)]
        if node.type.startswith("Assign"):
            before = self._assign(variable, node, inputs[1])
            self._inputs[number] = [*inputs, *before]
        return [self._new(number, index) for index in range(len(node.outputs))]

    def _held(
        self, number: int, inputs: list[Buffer], given: Sequence[Static]
    ) -> tuple[Buffer, ...]:
        """Returns input buffers that outputs without a buffer keep alive.

        Empty for other nodes. A list holds its elements, a part its tensor, and
        a result of fused operations the operands, which XLA reads later.
        """
        node = self._nodes[number]
        if node.type in kernels.PUTS:
            return inputs[0], inputs[-1]
        if kernels.is_view(node, given):
            return (inputs[kernels.data_input(node)],)
        return tuple(inputs) if number in self.function.fused else ()

    def _free_input(
        self,
        node: WrittenNode,
        index: int,
        inputs: list[Buffer],
        given: Sequence[Static],
    ) -> Buffer | None:
        """Returns an input to write an output into; `None` if there is none.

        It has the output's type and size, and nothing else reads it. If it is
        the last part of a tensor, the whole tensor stays in memory with it.
        """
        wanted = node.outputs[index]
        for buffer, static in zip(inputs, given):
            if (
                static.dtype == wanted.dtype
                and static.num_bytes == wanted.num_bytes
                and buffer.references == inputs.count(buffer)
                and buffer.is_alone
            ):
                return buffer
        return None

    def _new(
        self,
        number: int,
        index: int,
        holds: tuple[Buffer, ...] = (),
        num_bytes: int | None = None,
    ) -> Buffer:
        """Returns a new buffer for an output, counted in the node's memory."""
        node = self._nodes[number]
        if num_bytes is None:
            num_bytes = node.outputs[index].num_bytes
        uses = self._own_uses(number, index)
        if node.type == "Const":
            uses += 1  # The kernel keeps it.
        buffer = Buffer(
            num_bytes, self._category(number, index), holds, _scope(node.name)
        )
        memory = self._memories[number] or self.step.home
        return self.ledgers[memory].made(buffer, uses)

    def _shared(self, buffer: Buffer, number: int, index: int) -> Buffer:
        """Adds an output's references to an existing buffer; returns it."""
        buffer.references += self._own_uses(number, index)
        return buffer

    def _assign(
        self, variable: VariableBuffer, node: WrittenNode, value: Buffer
    ) -> list[Buffer]:
        """Replaces a variable's content.

        Returns a list of the old content, which the caller is to release; empty
        if the kernel writes into it.
        """
        before = variable.content
        if node.type != "AssignVariableOp":
            if before.references == 1:
                return []  # Written in place.
            ledger = before.ledger or self.ledgers[self.step.home]
            value = ledger.made(Buffer(before.num_bytes, before.category), 0)
        value.references += 1
        recategorize(value, before.category)
        variable.content = value
        return [before]

    def _category(self, number: int, index: int) -> str:
        found = self.function.categories.get((number, index))
        if found is not None:
            return found
        if self._nodes[number].type == "Const":
            return CONSTANTS
        if self._in_backward or number not in self.function.kept:
            return WORKSPACE
        return ACTIVATIONS


def _scope(name: str) -> str:
    """Returns a node name's scope, without `replica_0/` or `host/`."""
    if name.startswith(("replica_", "host/")):
        _, _, name = name.partition("/")
    return name.rpartition("/")[0]
