"""Tells what a planned graph sends, without lowering all of it.

A search of layouts asks that of hundreds of plans. Most values are needed as they
are made; only the others are lowered.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kerasmgpu.partitioner.ir.instructions import (
    Communication,
    Instruction,
    Value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, bodies_of
from kerasmgpu.partitioner.passes import instruction_of
from kerasmgpu.partitioner.passes.group_sums import levels_of, sums_of
from kerasmgpu.partitioner.passes.lower_reshards import Lowering
from kerasmgpu.partitioner.passes.order_gathers import gather_again
from kerasmgpu.partitioner.planning.facts import is_known
from kerasmgpu.partitioner.planning.structure import Stretch
from kerasmgpu.partitioner.rules import tables
from kerasmgpu.partitioner.rules.kinds import Placement
from kerasmgpu.partitioner.rules.table import Plan
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor


class _Need(NamedTuple):
    """What a node needs otherwise than it is made.

    Attributes:
        node: The node.
        wanted: Its inputs that are needed otherwise.
        sends: Whether the node itself may send.
    """

    node: Node
    wanted: tuple[Value, ...]
    sends: bool


class _Needs(NamedTuple):
    """What nodes need otherwise than it is made.

    Attributes:
        needs: Those of each node that has any, in the order of the nodes.
        sums: See `group_sums.sums_of`.
    """

    needs: list[_Need]
    sums: dict[Node, list[Node]]


class NeedsCache:
    """What stretches of a graph need, for plans of several layouts.

    Plans are told apart by identity: a `PlanCache` of the graph returns one for
    equal ones.

    Args:
        graph: The graph, which stays as it is.
        stretches: Its stretches.
    """

    def __init__(self, graph: Graph, stretches: Sequence[Stretch]) -> None:
        self.needs = {node: node.needs for node in graph.nodes}
        self._stretches = stretches
        self._found: dict[Any, tuple[Any, _Needs]] = {}

    def needs_of(
        self, program: Lowered, given: Mapping[Tensor, Placement]
    ) -> _Needs:
        """Returns what the nodes of a program need; see `_needs_of`."""
        planned = [of_axis.nodes for of_axis in program.plans]
        needs: list[_Need] = []
        sums: dict[Node, list[Node]] = {}
        for one in self._stretches:
            objects: list[Any] = []
            for tensor in one.given:
                objects += given.get(tensor, ())
            for of_axis in planned:
                objects += map(of_axis.__getitem__, one.makers)
            key = one.number, *map(id, objects)
            if key not in self._found:
                of_makers = [
                    {node: of_axis[node] for node in one.makers}
                    for of_axis in planned
                ]
                found = _needs_of(one.nodes, of_makers, given)
                self._found[key] = objects, found
            _, found = self._found[key]
            needs += found.needs
            sums.update(found.sums)
        return _Needs(needs, sums)


def sent_by(
    program: Lowered, cache: NeedsCache | None = None
) -> Iterator[Communication]:
    """Yields what a planned graph sends, also in loops and branches.

    It is that of the lowered program, before any is merged. In a job of several
    workers more may be sent.

    Args:
        program: A program whose instructions aren't looked at.
        cache: `NeedsCache` of its graph, if it is one of many.
    """
    lower_what_is_sent(program, cache)
    gather_again(program)
    yield from program.communication()


def lower_what_is_sent(
    program: Lowered, cache: NeedsCache | None = None
) -> None:
    """Makes the instructions that send, of the bodies of loops and branches, too.

    Instructions without outputs stand for operations that need what they make.

    Args:
        cache: See `sent_by`.
    """
    given = {one.tensor: one.placement for one in program.given}
    nodes = program.graph.nodes
    planned = [of_axis.nodes for of_axis in program.plans]
    if cache is None:
        found = _needs_of(nodes, planned, given)
        level = levels_of({node: node.needs for node in nodes}, found.sums)
    else:
        found = cache.needs_of(program, given)
        level = levels_of(cache.needs, found.sums)
    needs = sorted(found.needs, key=lambda need: level[need.node])
    lowering = _Sending(program)
    outputs = [
        one
        for one in program.outputs
        if _made(one.tensor, planned, given) not in (None, one.placement)
    ]
    lowering.needed.update(one for need in needs for one in need.wanted)
    lowering.needed.update(outputs)
    for need in needs:
        for one in need.wanted:
            lowering.want(one)
        instruction = Instruction(need.wanted, ())
        if need.sends:
            instruction = instruction_of(need.node, program)
        lowering.add(instruction)
        for body in bodies_of(instruction):
            lower_what_is_sent(body)
    for one in outputs:
        lowering.want(one)
    program.instructions = lowering.instructions


def _needs_of(
    nodes: Sequence[Node],
    planned: Sequence[Mapping[Node, Plan]],
    given: Mapping[Tensor, Placement],
) -> _Needs:
    """Returns what nodes need otherwise than it is made.

    Args:
        planned: On each axis of the mesh, the plans of the nodes and of those
            that make their inputs.
        given: Placements of the graph's inputs.
    """
    needs: list[_Need] = []
    for node in nodes:
        if node.type in ("Input", "Const"):
            continue
        plans = [of_axis[node] for of_axis in planned]
        wants = zip(*[plan.wants for plan in plans])
        wanted = tuple(
            Value(tensor, placement)
            for tensor, placement in zip(node.inputs, wants)
            if _made(tensor, planned, given) not in (None, placement)
        )
        sends = bool(node.bodies) or any(map(tables.is_exchanged, plans))
        if sends or wanted and not is_known(node):
            needs.append(_Need(node, wanted, sends))
    return _Needs(needs, sums_of(nodes, planned))


def _made(
    tensor: Tensor,
    planned: Sequence[Mapping[Node, Plan]],
    given: Mapping[Tensor, Placement],
) -> Placement | None:
    """Returns how a tensor is made, or passed.

    `None` for constants and known sizes: they are on all replicas.
    """
    node = tensor.node
    if tensor in given:
        return given[tensor]
    if node.type in ("Input", "Const") or is_known(node):
        return None
    return tuple(of_axis[node].gives[tensor.index] for of_axis in planned)


class _Sending(Lowering):
    """Lowering where operations that make values have no instruction."""

    def __init__(self, program: Lowered) -> None:
        super().__init__(program)
        self._as_planned: dict[Tensor, Value | None] = {}

    def is_made(self, one: Value) -> bool:
        return super().is_made(one) or one == self.source_of(one.tensor)

    def source_of(self, tensor: Tensor) -> Value | None:
        found = super().source_of(tensor)
        if found is not None:
            return found
        if tensor not in self._as_planned:
            self._as_planned[tensor] = self._planned(tensor)
        return self._as_planned[tensor]

    def _planned(self, tensor: Tensor) -> Value | None:
        """Returns the value that an operation makes as it is planned."""
        if tensor.node.type == "Const":
            return self.program.whole(tensor)
        planned = [of_axis.nodes for of_axis in self.program.plans]
        placement = _made(tensor, planned, {})
        return None if placement is None else Value(tensor, placement)
