"""A program: instructions in the order in which they are written."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from kerasmgpu.partitioner.ir.instructions import (
    Communication,
    Instruction,
    Operation,
    Runs,
    Value,
    value,
)
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.elementwise import CHECK_OF_PARTS
from kerasmgpu.partitioner.rules.integers import always_holds
from kerasmgpu.partitioner.rules.kinds import REPLICATED, Kind, MeshAxes
from kerasmgpu.partitioner.rules.table import Plan, Plans
from kerasmgpu.partitioner.step.graph import MUST_COMPILE, Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import CAN_FAIL, Trait

Members: TypeAlias = tuple[str, MeshAxes | None]
"""Members of collectives, `"replicas"` or `"hosts"`, and the mesh axes of their
lines; `None`: those of the whole mesh."""


@dataclasses.dataclass(eq=False)
class Region(Instruction):
    """Runs a loop or branch.

    Attributes:
        node: The `graph.Node`.
        plans: Its `rules.table.Plan` on each axis of the mesh.
        bodies: The programs of its functions, in the order of
            `records.Record.bodies`.
        runs: `ONCE` or `ON_EACH` if its bodies are functions of one replica,
            `TOGETHER` if of all replicas; `None` before `place_regions`.
        is_copied: For each input, whether each replica passes a reference of
            its own: to its rows, its part of a sum, or its copy. All `False` if
            the bodies are functions of one replica.
    """

    node: Node
    plans: tuple[Plan, ...]
    bodies: "list[Lowered]"
    runs: Runs | None = None
    is_copied: tuple[bool, ...] = ()

    @property
    def is_loop(self) -> bool:
        return Trait.LOOP in self.node.traits


@dataclasses.dataclass(eq=False)
class Call(Instruction):
    """Runs instructions on each replica, as one function that each calls.

    Attributes:
        body: The program of the function, on a mesh of one replica.
        defines: For each output, whether it is the definition of its tensor;
            else the tensor in another kind, or a part of it.
    """

    body: "Lowered"
    defines: tuple[bool, ...]


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Nodes of a written function that XLA compiles as one function.

    Attributes:
        call: Name of the node that calls its function.
        device: Name of their device.
        level: Number of cuts before it, on the longest path to it; the parts of
            a cluster have its level.
        function: Name of its function, which equal clusters share.
        origins: Maps names of the function's nodes to the names that they had in
            the program.
        operations: The types of its nodes, in order.
        arguments: Its inputs: a `Value`, or the reference to a tensor that is
            no `Value` of the program.
        results: Its outputs, likewise.
    """

    call: str
    device: str
    level: int
    function: str
    origins: dict[str, str]
    operations: list[str]
    arguments: list[Value | str]
    results: list[Value | str]


@dataclasses.dataclass(frozen=True)
class Form:
    """How the program of a trace is written; a trace can have several forms.

    Attributes:
        is_compiled: Whether XLA compiles the operations of each replica.
        with_outputs: Whether it returns what the traced function returns.
        is_xla_form: Whether it takes the place of a form without XLA that trains
            meanwhile. It draws the same random numbers as that one, so draws
            aren't compiled.
        groups: Group keys of its collectives, by members and mesh axis, if they
            were chosen before it was written: a thread may write it, and keys are
            counted in an order that is the same on all workers.
        assigns_last: Whether assignments of variables wait for everything else.
    """

    is_compiled: bool = False
    with_outputs: bool = True
    is_xla_form: bool = False
    groups: Mapping[Members, Sequence[int]] = dataclasses.field(
        default_factory=dict
    )
    assigns_last: bool = False


@dataclasses.dataclass(eq=False)
class Lowered:
    """The program of a function, or of a body of a loop or branch.

    Attributes:
        name: Its name, for people.
        graph: The `graph.Graph` that it is lowered from.
        plans: The `rules.table.Plans` of the graph on each axis of the mesh.
        mesh: The `mesh.Mesh` that runs it.
        given: Its inputs, in the kinds in which they are passed.
        outputs: The values that it returns.
        grouped: Outputs; partial sums among them are all-reduced together with
            sums of the last level, such as gradients.
        form: Its `Form`; that of a body says what XLA compiles of the body.
        copied: Inputs of which each replica has a reference of its own.
        offloaded: Inputs that are handles of variables on the host.
        instructions: See `instructions.py`.
        levels: Maps each node to its level, the number of sums on the longest
            path to it. The level is infinite (the last one) if it isn't 0, and
            no later sum needs the node; see `passes.group_sums`.
        after_batch: Nodes that wait for the batch; see `place_operations`.
        clusters: Its XLA clusters, once it is written.
        phases: Maps each instruction that runs for every micro-batch to its
            phase; see `passes.order_micro_batches`.
        after: Maps each other instruction to the first phase in which its
            results can be used. Empty, as `phases`, without micro-batches.
        on_host: Instructions whose replicas run them on the host; see
            `passes.offload`.
    """

    name: str
    graph: Graph
    plans: tuple[Plans, ...]
    mesh: Mesh
    given: list[Value]
    outputs: list[Value]
    grouped: Sequence[Tensor] = ()
    form: Form = Form()
    copied: frozenset[Value] = frozenset()
    offloaded: frozenset[Value] = frozenset()
    instructions: list[Instruction] = dataclasses.field(default_factory=list)
    levels: dict[Node, float] = dataclasses.field(default_factory=dict)
    after_batch: set[Node] = dataclasses.field(default_factory=set)
    clusters: list[Cluster] = dataclasses.field(default_factory=list)
    phases: dict[Instruction, int] = dataclasses.field(default_factory=dict)
    after: dict[Instruction, int] = dataclasses.field(default_factory=dict)
    on_host: set[Instruction] = dataclasses.field(default_factory=set)

    def whole(self, tensor: Tensor) -> Value:
        """Returns the value of a tensor that every replica holds whole."""
        return value(tensor, REPLICATED, len(self.plans))

    @property
    def regions(self) -> list[Region]:
        """Its loops and branches, without those inside their bodies."""
        return [i for i in self.instructions if isinstance(i, Region)]

    def compiles(self, node: Node) -> bool:
        """Whether XLA compiles a node, or the nodes of its bodies."""
        if MUST_COMPILE in node.definition.attr:
            return True
        return self.form.is_compiled and not (
            self.form.is_xla_form and _draws(node)
        )

    def turn_of(self, instruction: Instruction) -> tuple[int, bool]:
        """Returns an instruction's phase, and whether each micro-batch runs it.

        If not, its phase is the first one that can use its results.
        """
        phase = self.phases.get(instruction)
        if phase is None:
            return self.after.get(instruction, 0), False
        return phase, True

    def programs(self) -> "Iterator[Lowered]":
        """Yields this program and those of all its functions."""
        yield self
        for instruction in self.instructions:
            for body in bodies_of(instruction):
                yield from body.programs()

    def fails_by_itself(self) -> bool:
        """Whether an operation checks values, or runs a Python function.

        Not the checks of `NotFinite`, whose results updates need already, and
        none that can't fail.
        """
        return any(
            not CAN_FAIL.isdisjoint(one.node.traits)
            and one.node.attr("message") != CHECK_OF_PARTS
            and not _can_not_fail(one.node)
            for one in self.all_instructions()
            if isinstance(one, (Operation, Region))
        )

    def all_instructions(self) -> Iterator[Instruction]:
        """Yields its instructions, and those of its functions."""
        for instruction in self.instructions:
            yield instruction
            for body in bodies_of(instruction):
                yield from body.all_instructions()

    def communication(self) -> Iterator[Communication]:
        """Yields the communication among `all_instructions`."""
        for instruction in self.all_instructions():
            if isinstance(instruction, Communication):
                yield instruction


def _can_not_fail(node: Node) -> bool:
    return Trait.CHECKS in node.traits and always_holds(node.inputs[0])


def bodies_of(instruction: Instruction) -> Sequence[Lowered]:
    """Returns the programs of the functions that an instruction runs."""
    if isinstance(instruction, Region):
        return instruction.bodies
    return [instruction.body] if isinstance(instruction, Call) else ()


def values(
    tensors: Sequence[Tensor], kinds: Sequence[Sequence[Kind]]
) -> list[Value]:
    """Returns a value for each tensor; `kinds` are those on each axis of the mesh."""
    return list(map(Value, tensors, zip(*kinds)))


def _draws(node: Node) -> bool:
    """Whether a node, or one of its bodies, draws random numbers."""
    return Trait.DRAWS in node.traits or any(
        map(_draws, (inner for body in node.bodies for inner in body.nodes))
    )
