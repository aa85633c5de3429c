"""A program: instructions in the order in which they are written."""

import dataclasses
from collections.abc import Iterator, Sequence

from kerasmgpu.partitioner.ir.instructions import (
    Communication,
    Instruction,
    Runs,
    Value,
    value,
)
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import Kind
from kerasmgpu.partitioner.rules.table import Plan, Plans
from kerasmgpu.partitioner.step.graph import MUST_COMPILE, Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, record


@dataclasses.dataclass(eq=False)
class Region(Instruction):
    """A loop or branch.

    Attributes:
        node: The `graph.Node`.
        plan: Its `rules.table.Plan`.
        bodies: The programs of its functions, in the order of
            `records.Record.bodies`.
        runs: Where it runs: in a function of one replica, once or on each, or
            for all together; `None` before `place_regions`.
        is_copied: For each input, whether replicas pass references of their
            own: its rows, its part of a sum, or its copy.
    """

    node: Node
    plan: Plan
    bodies: "list[Lowered]"
    runs: Runs | None = None
    is_copied: tuple[bool, ...] = ()

    @property
    def is_loop(self) -> bool:
        return Trait.LOOP in record(self.node.type).traits


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Nodes of a written function that XLA compiles as one.

    Attributes:
        device: Name of their device.
        level: The largest number of clusters on a path to it.
        operations: Their types, in order.
        arguments: What it takes: values, or references to what is none.
        results: What it returns.
    """

    device: str
    level: int
    operations: list[str]
    arguments: list[Value | str]
    results: list[Value | str]


@dataclasses.dataclass(eq=False)
class Lowered:
    """A function, or the body of a loop or branch, of all replicas.

    Attributes:
        name: Its name, for people.
        graph: The `graph.Graph` that it is lowered from.
        plans: The `rules.table.Plans` of the graph.
        mesh: The `mesh.Mesh` that runs it.
        given: How its inputs are given.
        outputs: The values that it returns.
        grouped: Tensors of the outputs that may be summed with others.
        is_compiled: Whether XLA compiles what each replica does.
        copied: Inputs of which each replica has a reference of its own.
        assigns_last: Whether variables are assigned when all else is computed.
        instructions: See `instructions.py`.
        levels: For each node the number of sums on the longest path to it;
            infinite for what no sum needs.
        after_batch: Nodes that wait for the batch; see `place_operations`.
        clusters: What XLA compiles of it, once it is written.
        phases: For each instruction that runs for every micro-batch the phase
            in which it does; see `passes.order_micro_batches`.
        after: For each other instruction the phase that its results are there
            in, with several micro-batches.
    """

    name: str
    graph: Graph
    plans: Plans
    mesh: Mesh
    given: list[Value]
    outputs: list[Value]
    grouped: Sequence[Tensor] = ()
    is_compiled: bool = False
    copied: frozenset[Value] = frozenset()
    assigns_last: bool = False
    instructions: list[Instruction] = dataclasses.field(default_factory=list)
    levels: dict[Node, float] = dataclasses.field(default_factory=dict)
    after_batch: set[Node] = dataclasses.field(default_factory=set)
    clusters: list[Cluster] = dataclasses.field(default_factory=list)
    phases: dict[Instruction, int] = dataclasses.field(default_factory=dict)
    after: dict[Instruction, int] = dataclasses.field(default_factory=dict)

    @property
    def regions(self) -> list[Region]:
        """Its loops and branches, without those inside of them."""
        return [i for i in self.instructions if isinstance(i, Region)]

    def compiles(self, node: Node) -> bool:
        """Whether XLA compiles a node's operations."""
        return self.is_compiled or MUST_COMPILE in node.definition.attr

    def turn_of(self, instruction: Instruction) -> tuple[int, bool]:
        """The phase of an instruction, and whether it takes turns in it."""
        phase = self.phases.get(instruction)
        if phase is None:
            return self.after.get(instruction, 0), False
        return phase, True

    def programs(self) -> "Iterator[Lowered]":
        """It, and the bodies of its loops and branches."""
        yield self
        for region in self.regions:
            for body in region.bodies:
                yield from body.programs()

    def all_instructions(self) -> Iterator[Instruction]:
        """Its instructions, and those of its loops and branches."""
        for instruction in self.instructions:
            yield instruction
            if isinstance(instruction, Region):
                for body in instruction.bodies:
                    yield from body.all_instructions()

    def communication(self) -> Iterator[Communication]:
        """All communication, also that of loops and branches, once each."""
        for instruction in self.all_instructions():
            if isinstance(instruction, Communication):
                yield instruction


def values(tensors: Sequence[Tensor], kinds: Sequence[Kind]) -> list[Value]:
    """A value for each tensor, on a mesh of one axis."""
    return [value(tensor, kind) for tensor, kind in zip(tensors, kinds)]
