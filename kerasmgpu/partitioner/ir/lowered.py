"""A program: instructions in the order in which they are written."""

import dataclasses
from collections.abc import Iterator, Sequence

from kerasmgpu.partitioner.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.ir.instructions import (
    Communication,
    Instruction,
    Region,
    Value,
    value,
)
from kerasmgpu.partitioner.kinds import Kind
from kerasmgpu.partitioner.planning import Plans
from kerasmgpu.partitioner.replicas import Replicas


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
        plans: The `planning.Plans` of the graph.
        replicas: The `replicas.Replicas` that run it.
        given: How its inputs are given.
        outputs: The values that it returns.
        grouped: Tensors of the outputs that may be summed with others.
        instructions: See `instructions.py`.
        levels: For each node the number of sums on the longest path to it;
            infinite for what no sum needs.
        clusters: What XLA compiles of it, once it is written.
        phases: For each instruction that runs for every micro-batch the phase
            in which it does; see `passes.order_micro_batches`.
        after: For each other instruction the phase that its results are there
            in, with several micro-batches.
    """

    name: str
    graph: Graph
    plans: Plans
    replicas: Replicas
    given: list[Value]
    outputs: list[Value]
    grouped: Sequence[Tensor] = ()
    instructions: list[Instruction] = dataclasses.field(default_factory=list)
    levels: dict[Node, float] = dataclasses.field(default_factory=dict)
    clusters: list[Cluster] = dataclasses.field(default_factory=list)
    phases: dict[Instruction, int] = dataclasses.field(default_factory=dict)
    after: dict[Instruction, int] = dataclasses.field(default_factory=dict)

    @property
    def regions(self) -> list[Region]:
        """Its loops and branches, without those inside of them."""
        return [i for i in self.instructions if isinstance(i, Region)]

    def turn_of(self, instruction: Instruction) -> tuple[int, bool]:
        """The phase of an instruction, and whether it takes turns in it."""
        phase = self.phases.get(instruction)
        if phase is None:
            return self.after.get(instruction, 0), False
        return phase, True

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
