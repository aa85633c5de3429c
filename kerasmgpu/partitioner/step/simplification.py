"""Common-subexpression and dead-node elimination, and topological sorting."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from kerasmgpu.partitioner.step.constraints import layout_of
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import Trait

T = TypeVar("T")


def simplified(graph: Graph) -> Graph:
    """Eliminates common subexpressions and dead nodes, in bodies too.

    The graph is changed and returned.
    """
    graph = without_dead_nodes(_merged(_without_memory_hints(graph)))
    for node in graph.nodes:
        node.bodies = [simplified(body) for body in node.bodies]
    return graph


def _without_memory_hints(graph: Graph) -> Graph:
    """Drops control dependencies that order neither effects nor checks.

    TensorFlow's gradients make small constants wait for other gradients, to
    save memory. Each such dependency would cost a message between devices.
    """
    waited_for = set()
    for node in graph.nodes:
        if (
            not waited_for.isdisjoint(node.needs)
            or (node.is_stateful and Trait.READ_ONLY not in node.traits)
            or node.bodies
            or Trait.CHECKS in node.traits
        ):
            waited_for.add(node)
        if not node.is_stateful and node.type != "NoOp":
            node.controls = [c for c in node.controls if c in waited_for]
    return graph


def without_dead_nodes(graph: Graph) -> Graph:
    """Removes nodes that no output or effect needs; returns the graph."""
    made = [tensor.node for tensor in graph.outputs]
    needed = reached([*made, *graph.effects], lambda node: node.needs)
    graph.nodes = [node for node in graph.nodes if node in needed]
    return graph


def ordered(graph: Graph) -> list[Node]:
    """Returns a graph's nodes in topological order, without its inputs."""
    nodes = in_order(graph.nodes, lambda node: node.needs)
    return [node for node in nodes if node.type != "Input"]


def _merged(graph: Graph) -> Graph:
    """Eliminates common subexpressions and identities; changes the graph."""
    same, representative, known = {}, {}, {}

    def now(tensor: Tensor) -> Tensor:
        return same.get(tensor, tensor)

    for node in graph.nodes:
        node.inputs = [now(tensor) for tensor in node.inputs]
        node.controls = list(
            dict.fromkeys([representative.get(c, c) for c in node.controls])
        )
        passes = Trait.PASSES in node.traits
        if passes and not node.controls and layout_of(node) is None:
            same.update(zip(node.outputs, node.inputs))
            for passed, tensor in zip(node.outputs, node.inputs):
                tensor.learn(passed.static)
            source = node.inputs[0].node if node.inputs else node
            representative[node] = source
            continue
        if not _can_merge(node):
            continue
        key = (
            node.type,
            tuple(id(tensor) for tensor in node.inputs),
            tuple(id(control) for control in node.controls),
            node.definition.SerializeToString(deterministic=True),
        )
        first = known.setdefault(key, node)
        if first is not node:
            same.update(zip(node.outputs, first.outputs))
            representative[node] = first
    graph.outputs = [now(tensor) for tensor in graph.outputs]
    graph.effects = list(
        dict.fromkeys([representative.get(n, n) for n in graph.effects])
    )
    return graph


def _can_merge(node: Node) -> bool:
    # Reads of a variable after the same assignment are equal; automatic
    # control dependencies name the assignment, and are part of the key.
    if Trait.READS in node.traits:
        return True
    if Trait.MAKES_LIST in node.traits:
        return False  # Elements are inserted later, and may differ.
    return not node.is_stateful and not node.bodies


def reached(items: Iterable[T], needs: Callable[[T], Iterable[T]]) -> set[T]:
    """Returns items, and all that they need, directly or not."""
    found: set[T] = set()
    waiting = list(items)
    while waiting:
        item = waiting.pop()
        if item not in found:
            found.add(item)
            waiting += needs(item)
    return found


def in_order(items: Iterable[T], needs: Callable[[T], Iterable[T]]) -> list[T]:
    """Sorts items topologically, and otherwise keeps their order.

    The result also has predecessors that aren't among the items.

    Args:
        needs: Function that lists the predecessors of an item.
    """
    placed, order = set(), []
    for item in items:
        waiting = [item]
        while waiting:
            last = waiting[-1]
            if last in placed:
                waiting.pop()
                continue
            missing = [other for other in needs(last) if other not in placed]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            placed.add(last)
            order.append(last)
    return order
