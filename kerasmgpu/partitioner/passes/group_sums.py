"""Merges all-reduces whose results are needed at the same point.

A node's level is the number of sums on the longest path to it. Nodes are sorted
by level, so that the parts of all sums that a level needs are computed before
the first of these sums. Nodes that depend on a sum, but that no other sum
needs, such as an optimizer's updates, come last. So all gradients are summed
together, in the order in which the backward pass makes them.
"""

import collections
import itertools
from collections.abc import Iterable, Mapping, Sequence

from kerasmgpu.partitioner.ir.instructions import (
    AllReduce,
    Instruction,
    Value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.rules.kinds import Partial, PerReplica
from kerasmgpu.partitioner.rules.table import Plan, Plans
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.simplification import reached

LAST = float("inf")
"""Level of nodes that depend on a sum, but that no other sum needs."""


def levels(graph: Graph, plans: Sequence[Plans]) -> dict[Node, float]:
    """Returns the level of each node, in the order of the graph."""
    needs = {node: node.needs for node in graph.nodes}
    return levels_of(needs, sums_of(graph.nodes, [of.nodes for of in plans]))


def levels_of(
    needs: Mapping[Node, Sequence[Node]], sums: Mapping[Node, Sequence[Node]]
) -> dict[Node, float]:
    """Returns the level of each node.

    Args:
        needs: For each node, `Node.needs`.
        sums: See `sums_of`.
    """
    found: dict[Node, float] = {}
    for node, before in needs.items():
        level = 0.0
        for other in before:
            of_other = found.get(other, 0)
            if of_other > level:
                level = of_other
        for other in sums.get(node, ()):
            level = max(level, found.get(other, 0) + 1)
        found[node] = level
    summed = itertools.chain.from_iterable(sums.values())
    needed = reached(summed, lambda node: needs.get(node, ()))
    return {
        node: level if not level or node in needed else LAST
        for node, level in found.items()
    }


def sums_of(
    nodes: Iterable[Node], planned: Sequence[Mapping[Node, Plan]]
) -> dict[Node, list[Node]]:
    """Returns, for nodes that need sums, the nodes that make parts of these.

    Args:
        planned: On each axis of the mesh, the plans of the nodes and of those
            that make their inputs.
    """
    parts = list(map(_partial, planned))
    found = {}
    for node in nodes:
        sums = _sums_for(node, planned, parts)
        if sums:
            found[node] = [tensor.node for tensor in sums]
    return found


def group_sums(program: Lowered) -> None:
    """Merges the all-reduces that a level needs, at the place of the earliest.

    Sums, maxima and so on stay apart, as do all-reduces whose inputs aren't
    made there yet.
    """
    needed_at = _needed_at(program)
    nodes = sorted(program.graph.nodes, key=program.levels.__getitem__)
    made_at = {node: position for position, node in enumerate(nodes)}
    made: set[Value] = set(program.given)
    merged: set[AllReduce] = set()
    result: list[Instruction] = []
    at_level = collections.defaultdict(list)
    for instruction in program.instructions:
        if isinstance(instruction, AllReduce):
            level = needed_at.get(instruction.inputs[0].tensor)
            at_level[level].append(instruction)
    for instruction in program.instructions:
        if instruction in merged:
            continue
        if not isinstance(instruction, AllReduce):
            result.append(instruction)
            made.update(instruction.outputs)
            continue
        level = needed_at.get(instruction.inputs[0].tensor)
        group = [instruction]
        if level is not None:
            group += [
                other
                for other in at_level[level]
                if other is not instruction
                and other not in merged
                and made.issuperset(other.inputs)
            ]
        merged.update(group)
        group.sort(key=lambda one: _order(one.inputs[0].tensor, made_at))
        alike: dict[tuple, list[AllReduce]] = {}
        for one in group:
            # Lines of a mesh share the work of sums that are whole on all.
            in_turns = program.mesh.micro_batches > 1 and one.is_of_rows
            kind = one.by, one.axis, one.outputs[0].is_local, in_turns
            alike.setdefault(kind, []).append(one)
        result += map(merged_sums, alike.values())
        for one in group:
            made.update(one.outputs)
    program.instructions = result


def merged_sums(reductions: list[AllReduce]) -> AllReduce:
    """Returns one all-reduce in place of several that reduce in one way."""
    first = reductions[0]
    inputs = tuple(one for other in reductions for one in other.inputs)
    outputs = tuple(one for other in reductions for one in other.outputs)
    return AllReduce(inputs, outputs, first.by, first.widens)


def _order(tensor: Tensor, made_at: dict[Node, int]) -> tuple[int, int]:
    return made_at.get(tensor.node, -1), tensor.index


def _needed_at(program: Lowered) -> dict[Tensor, float]:
    """Maps each partial tensor to the lowest level that needs it whole."""
    first: dict[Tensor, float] = {}
    planned = [of_axis.nodes for of_axis in program.plans]
    parts = list(map(_partial, planned))
    for node in sorted(program.graph.nodes, key=program.levels.__getitem__):
        for tensor in _sums_for(node, planned, parts):
            first.setdefault(tensor, program.levels[node])
    for tensor in program.grouped:
        if any(tensor in of_axis for of_axis in parts):
            first.setdefault(tensor, LAST)
    return first


def _sums_for(
    node: Node,
    planned: Sequence[Mapping[Node, Plan]],
    parts: Sequence[set[Tensor]],
) -> list[Tensor]:
    """Returns the partial inputs that a node needs whole, once per mesh axis.

    Args:
        parts: For each of `planned`, what `_partial` returns.
    """
    found: list[Tensor] = []
    for of_axis, partial in zip(planned, parts):
        if not partial.isdisjoint(node.inputs):
            found += [
                tensor
                for tensor, want in zip(node.inputs, of_axis[node].wants)
                if tensor in partial
                and not isinstance(want, (PerReplica, Partial))
            ]
    return found


def _partial(plans: Mapping[Node, Plan]) -> set[Tensor]:
    """Returns the tensors of which an operation makes a part of a sum."""
    return {
        tensor
        for node, plan in plans.items()
        for tensor, kind in zip(node.outputs, plan.gives)
        if isinstance(kind, (PerReplica, Partial))
    }
