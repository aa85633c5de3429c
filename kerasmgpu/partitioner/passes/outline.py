"""Outlines what each replica runs between two communications.

TensorFlow prepares a function in several passes over all its nodes, those of
every replica. What is outlined is written once, as a function that each replica
calls, and prepared for each device by itself.
"""

import collections
from collections.abc import Iterator, Sequence
from typing import cast

from kerasmgpu.partitioner.ir.instructions import (
    Alias,
    Communication,
    Constant,
    Instruction,
    KnownSizes,
    LocalShape,
    Operation,
    Runs,
    Slice,
    Value,
)
from kerasmgpu.partitioner.ir.lowered import Call, Lowered, Region
from kerasmgpu.partitioner.planning.facts import is_known
from kerasmgpu.partitioner.rules.kinds import (
    LocalSizes,
    PerReplica,
    Sharded,
    is_of_variable,
)
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import MUST_COMPILE, Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import Trait

FEWEST_REPLICAS = 4
"""Replicas from which on it pays: a call takes as long as some nodes."""

FEWEST = 16
"""Operations of the smallest function."""

MOST_BYTES = 1 << 22
"""Bytes to be sent after which a function ends. It returns all its results at
its end: sums would wait for the whole backward pass, and all replicas' gradients
would be in memory at once."""

_FREE = (Alias, LocalShape, Slice)
"""Instructions that write no operation, or only the slice of an input."""

_REPEATED = (Constant, KnownSizes)
"""Instructions that each function has for itself."""


def pays(program: Lowered) -> bool:
    """Whether the pass runs on a program.

    It runs on at least four CPU devices of one process. A GPU would begin sums
    later than it could, and so would workers.
    """
    mesh = program.mesh
    return (
        mesh.shares_memory
        and mesh.num == mesh.total >= FEWEST_REPLICAS
        and mesh.micro_batches == 1
        and not program.form.is_compiled
        and not program.form.assigns_last
        and mesh.num_axes == 1
        and not any(is_of_variable(one.kind) for one in program.given)
    )


def outline(program: Lowered) -> None:
    """Replaces what each replica runs between communications by `Call`s."""
    order = _Order(program)
    found: dict[int, list[int]] = collections.defaultdict(list)
    for number, stage in enumerate(order.stages):
        found[stage].append(number)
    instructions: list[Instruction] = []
    bodies: list[list[int]] = []
    for stage in sorted(found):
        for numbers in order.parts(found[stage]):
            if order.is_outlined[numbers[0]] and order.is_large(numbers):
                bodies.append(numbers)
                instructions.append(_call(program, order, numbers))
            else:
                instructions += [program.instructions[n] for n in numbers]
    program.instructions = instructions


class _Order:
    """The stages of a program.

    Even stages are outlined; in the odd ones are communication and what runs
    once. What an instruction needs is in its own stage or an earlier one.

    Attributes:
        stages: The stage of each instruction, by its number.
        is_outlined: Whether each instruction can be outlined.
        makers: Maps each value to the number of the instruction that makes it.
        takers: Maps each value to the numbers of the instructions that take it.
        needs: For each instruction, the numbers of those whose tensors' sizes
            it needs.
    """

    def __init__(self, program: Lowered) -> None:
        self._program = program
        self.stages: list[int] = []
        # Where a step can fail, assignments wait for functions of all replicas.
        only_reads = program.fails_by_itself()
        self.is_outlined = [
            _can_be_outlined(one, only_reads) for one in program.instructions
        ]
        self.makers: dict[Value, int] = {}
        self.takers: dict[Value, list[int]] = collections.defaultdict(list)
        self.needs: list[set[int]] = []
        self._first: dict[Tensor, int] = {}
        self._before: list[set[int]] = []
        of_node: dict[Node, int] = {}
        for number, instruction in enumerate(program.instructions):
            sources = {
                self._first[tensor]
                for tensor in _sources(instruction)
                if tensor in self._first
            }
            self.needs.append(sources)
            before = sources | {
                of_node[node]
                for node in _controls(instruction)
                if node in of_node
            }
            for one in instruction.inputs:
                self.takers[one].append(number)
                if one in self.makers:
                    before.add(self.makers[one])
            for one in instruction.outputs:
                self.makers[one] = number
                self._first.setdefault(one.tensor, number)
            if isinstance(instruction, (Operation, Region)):
                of_node[instruction.node] = number
            self._before.append(before)
            self.stages.append(self._stage(number))
        self._read_late()

    def _stage(self, number: int) -> int:
        own = self.is_outlined[number]
        stage = 0 if own else -1
        for other in self._before[number]:
            if isinstance(self._program.instructions[other], Constant):
                continue
            differs = own != self.is_outlined[other]
            stage = max(stage, self.stages[other] + differs)
        return stage

    def _read_late(self) -> None:
        """Moves reads of variables to the first stage that needs them.

        A read that no function needs stays where it is: the optimizer's, whose
        updates run once.
        """
        after: list[list[int]] = [[] for _ in self.stages]
        for number, before in enumerate(self._before):
            for other in before:
                after[other].append(number)
        for number, instruction in enumerate(self._program.instructions):
            if not _reads(instruction) or not self.is_outlined[number]:
                continue
            taken = [
                taker
                for one in instruction.outputs
                for taker in self.takers[one]
                if self.is_outlined[taker]
            ]
            if taken:
                self.stages[number] = min(
                    self.stages[other] - (not self.is_outlined[other])
                    for other in after[number]
                )
            else:
                self.is_outlined[number] = False
                self.stages[number] = -1

    def parts(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Cuts a stage behind each `MOST_BYTES` that are sent."""
        part: list[int] = []
        num_bytes = 0
        for number in numbers:
            part.append(number)
            num_bytes += sum(map(self._sent, self._made(number)))
            if num_bytes > MOST_BYTES:
                yield part
                part, num_bytes = [], 0
        if part:
            yield part

    def _made(self, number: int) -> tuple[Value, ...]:
        return self._program.instructions[number].outputs

    def _sent(self, one: Value) -> int:
        """Returns the bytes of a value that is sent, as far as they are known."""
        elements = one.tensor.num_elements
        is_sent = isinstance(elements, int) and any(
            isinstance(self._program.instructions[taker], Communication)
            for taker in self.takers[one]
        )
        return cast(int, elements) * one.tensor.dtype.size if is_sent else 0

    def is_large(self, numbers: Sequence[int]) -> bool:
        """Whether some instructions have enough operations to be a function."""
        instructions = [self._program.instructions[n] for n in numbers]
        return FEWEST <= sum(
            isinstance(one, Operation) and one.node.type != "NoOp"
            for one in instructions
        )


def _can_be_outlined(instruction: Instruction, only_reads: bool) -> bool:
    if instruction.needs_all_replicas:
        return False
    if isinstance(instruction, _FREE):
        return True
    if not isinstance(instruction, Operation):
        return False
    node = instruction.node
    state = Trait.READ_ONLY if only_reads else Trait.COPIED
    return (
        instruction.runs is Runs.ON_EACH
        and MUST_COMPILE not in node.definition.attr
        # Assignments wait for the functions of all replicas.
        and (not node.is_stateful or state in node.traits)
    )


def _reads(instruction: Instruction) -> bool:
    """Whether an instruction reads a variable, and waits for nothing."""
    return (
        isinstance(instruction, Operation)
        and Trait.READS in instruction.node.traits
        and not instruction.node.controls
    )


def _controls(instruction: Instruction) -> Sequence[Node]:
    if isinstance(instruction, (Operation, Region)):
        return instruction.node.controls
    return ()


def _sources(instruction: Instruction) -> Iterator[Tensor]:
    """Yields the tensors whose sizes an instruction can need."""
    for one in (*instruction.inputs, *instruction.outputs):
        known = [one.tensor.shape, one.tensor.value, one.tensor.element]
        kind = one.kind
        if isinstance(kind, LocalSizes):
            known.append(kind.shape)
            kind = kind.sharded
        if isinstance(kind, Sharded):
            known.append((kind.outer, kind.inner))
        if isinstance(kind, (Sharded, PerReplica)):
            known.append(kind.rows.size)
        for size in (size for some in known for size in sizes.as_tuple(some)):
            if isinstance(size, sizes.Size):
                for symbol in size.symbols:
                    yield symbol.joined.source[0]


def _call(program: Lowered, order: _Order, numbers: Sequence[int]) -> Call:
    """Returns the call of a function of some instructions."""
    inside = set(numbers)
    repeated: set[int] = set()
    taken: dict[Value, None] = {}
    for number in numbers:
        for one in program.instructions[number].inputs:
            maker = order.makers.get(one)
            if maker in inside:
                continue
            if maker is not None and isinstance(
                program.instructions[maker], _REPEATED
            ):
                repeated.add(maker)
            else:
                taken[one] = None
    # Sizes of these are needed outside.
    measured = {
        source
        for number, sources in enumerate(order.needs)
        if number not in inside
        for source in sources & inside
    }
    returned = set(program.outputs)
    results = [
        one
        for number in numbers
        for one in program.instructions[number].outputs
        if number in measured
        or one in returned
        or not inside.issuperset(order.takers[one])
    ]
    instructions = [
        program.instructions[number] for number in sorted(inside | repeated)
    ]
    nodes = [one.node for one in instructions if isinstance(one, Operation)]
    own = set(nodes)
    effects = [node for node in program.graph.effects if node in own]
    body = Lowered(
        program.name,
        Graph(nodes, [], [], effects),
        program.plans,
        program.mesh.alone(),
        list(taken),
        results,
        instructions=instructions,
    )
    makers = [program.instructions[order.makers[one]] for one in results]
    defines = [
        isinstance(maker, Operation) and not is_known(maker.node)
        for maker in makers
    ]
    return Call(tuple(taken), tuple(results), body, tuple(defines))
