"""Finds nodes that recompute the forward pass."""

from collections.abc import Hashable
from typing import Any

from kerasmgpu.flops.operations import has_rule
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor, constant_array
from kerasmgpu.partitioner.step.recompute import is_backward_name, is_copy
from kerasmgpu.partitioner.step.records import Trait


def recomputed(graph: Graph) -> set[Node]:
    """Returns the nodes of a step that compute something again.

    These are the copies that `recompute=` and `keras.RematScope` ask for, and
    nodes of `tf.recompute_grad`: those that depend on an input that waits for
    gradients, and repeat an earlier node. All random numbers of one shape count
    as equal, since dropout draws anew; so do two loops with the same products
    and inputs.
    """
    copies = {node for node in graph.nodes if is_copy(node)}
    late = _after_waiting(graph)
    if not late:
        return copies
    numbers: dict[Tensor, Hashable] = {t: t for t in graph.inputs}
    seen: dict[Hashable, Hashable] = {}
    repeated = set()
    for node in graph.nodes:
        if _only_waits(node):
            numbers[node.outputs[0]] = numbers[node.inputs[0]]
            continue
        key = _key(node, numbers)
        is_repeated = key in seen and node in late
        if is_repeated and not is_backward_name(node.name):
            repeated.add(node)
        number = seen.setdefault(key, object())
        for tensor in node.outputs:
            numbers[tensor] = (number, tensor.index)
    return repeated | copies


def _after_waiting(graph: Graph) -> set[Node]:
    """Returns the nodes that wait for gradients, and all downstream of them."""
    late: set[Node] = set()
    for node in graph.nodes:
        if _only_waits(node) or not late.isdisjoint(node.needs):
            late.add(node)
    return late


def _only_waits(node: Node) -> bool:
    """Whether a node only orders execution: it adds a 0 made from a gradient.

    With such nodes `tf.recompute_grad`, and so `keras.remat`, waits for
    gradients, since XLA drops control dependencies (TensorFlow 2.18 to 2.21).
    """
    if node.type != "AddV2":
        return False
    added = node.inputs[1].node
    if added.type == "Cast":
        added = added.inputs[0].node
    return added.type == "SelectV2" and [
        str(constant_array(tensor.node)) if tensor.node.type == "Const" else ""
        for tensor in added.inputs[1:]
    ] == ["0.0", "nan"]


def _key(node: Node, numbers: dict[Tensor, Hashable]) -> Hashable:
    """Returns a key that a node shares with those that compute the same."""
    traits = node.traits
    if node.bodies:
        # A loop has more lists and outputs if it is recorded for a gradient.
        given = [t for t in node.inputs if t.dtype.is_floating]
        return (
            node.type,
            tuple(sorted(_products(node))),
            tuple(numbers[tensor] for tensor in given),
        )
    if Trait.DRAWS in traits:
        return node.type, node.outputs[0].dtype, node.outputs[0].shape
    if Trait.READS in traits:
        handle = node.inputs[0]
        assigned = [n for n in node.controls if handle in n.inputs]
        return node.type, numbers[handle], tuple(assigned)
    if node.is_stateful:
        return node
    return (
        node.type,
        tuple(numbers[tensor] for tensor in node.inputs),
        node.definition.SerializeToString(deterministic=True),
    )


def _products(node: Node) -> list[str]:
    """Returns a text of type and shapes for each product in a node's bodies."""
    found: list[str] = []
    waiting: list[Any] = list(node.bodies)
    while waiting:
        for inner in waiting.pop().nodes:
            waiting += inner.bodies
            if has_rule(inner):
                shapes = [tensor.static for tensor in inner.inputs]
                found.append(f"{inner.type}{shapes}")
    return found
