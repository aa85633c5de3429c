"""Adds control dependencies between effects that only data dependencies order.

TensorFlow's automatic control dependencies order accesses to one variable, and
effects outside of TensorFlow. In a graph without them
(`tf.compat.v1.wrap_function`) two operations can be ordered only because one
takes the result of the other, or its shape. Replicas get sizes from the host
without waiting, so such orders become control dependencies before the graph is
simplified.
"""

from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.partitioner.step.simplification import reached

_NOT_ORDERED = {Trait.NO_STATE, Trait.PRIVATE_STATE}


def add_controls(graph: Graph) -> None:
    """Adds control dependencies where only data dependencies order effects.

    Args:
        graph: `graph.Graph`, before dead nodes are removed. It and its bodies
            are changed.
    """
    ordered = _ordered_by_tensorflow(graph)
    for node in graph.nodes:
        if _is_stateful(node) and node not in ordered:
            node.controls = list(
                dict.fromkeys([*node.controls, *_before(node)])
            )
        for body in node.bodies:
            add_controls(body)


def _ordered_by_tensorflow(graph: Graph) -> set[Node]:
    """Returns the effects of a graph and of calls inlined in it.

    Automatic control dependencies order them.
    """
    return reached(
        graph.effects,
        # A `NoOp` is the end of an inlined function.
        lambda node: node.controls if node.type == "NoOp" else (),
    )


def _before(node: Node) -> list[Node]:
    """Returns the nearest stateful ancestors that share state with a node."""
    states = _states(node)
    found, seen, waiting = [], set(), list(node.needs)
    while waiting:
        other = waiting.pop()
        if other in seen:
            continue
        seen.add(other)
        if _is_stateful(other) and not states.isdisjoint(_states(other)):
            found.append(other)
        else:
            waiting += other.needs
    return found


def _is_stateful(node: Node) -> bool:
    if node.bodies:
        return any(
            _is_stateful(inner) for body in node.bodies for inner in body.nodes
        )
    return node.is_stateful and _NOT_ORDERED.isdisjoint(node.traits)


def _states(node: Node) -> set[Tensor | None]:
    """Returns the resource handles among a node's inputs, and perhaps `None`.

    `None` stands for all other state, such as Python's and files. It is added
    if the node has bodies or no handles.
    """
    states: set[Tensor | None] = {
        tensor for tensor in node.inputs if tensor.dtype.name == "resource"
    }
    return states | {None} if node.bodies or not states else states
