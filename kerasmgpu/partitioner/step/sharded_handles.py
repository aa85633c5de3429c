"""Rewrites operations on handles of sharded variables.

Each replica can read its part of the variable, assign it, look rows up in it
and update rows of it. Other operations, such as `variable[1:3].assign(…)` and
scatters by index vectors, are rewritten to read the whole value and, if they
change it, to assign the new one. Reads in loops are loop-invariant: they are
moved in front of the loop, which would otherwise gather the variable in each
iteration.
"""

from collections.abc import Collection

import tensorflow as tf

from kerasmgpu.partitioner.step.definitions import set_attributes
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor, new_node
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.partitioner.step.simplification import ordered

_ON_VALUES = {
    "ResourceGatherNd": "GatherNd",
    "ResourceScatterNdAdd": "TensorScatterAdd",
    "ResourceScatterNdMax": "TensorScatterMax",
    "ResourceScatterNdMin": "TensorScatterMin",
    "ResourceScatterNdSub": "TensorScatterSub",
    "ResourceScatterNdUpdate": "TensorScatterUpdate",
    "ResourceStridedSliceAssign": "TensorStridedSliceUpdate",
}
"""Maps operations on a handle to the same operations on its value."""

_ATTRIBUTES = ("Index", "Tindices", "Tparams")
_MASKS = ("begin", "ellipsis", "end", "new_axis", "shrink_axis")


def rewritten(graph: Graph, handles: Collection[Tensor]) -> Graph:
    """Rewrites operations on handles of sharded variables.

    Args:
        graph: The `Graph` of a function or body; it is changed, with the bodies
            in it, and returned.
        handles: Those of its inputs that are handles of sharded variables.
    """
    if not handles:
        return graph
    nodes: list[Node] = []
    same: dict[Tensor, Tensor] = {}
    for node in graph.nodes:
        node.inputs = [same.get(tensor, tensor) for tensor in node.inputs]
        for body in node.bodies:
            carried = node.inputs[-len(body.inputs) :]
            inner = [
                own
                for own, given in zip(body.inputs, carried)
                if given in handles
            ]
            rewritten(body, inner)
        if Trait.LOOP in node.traits:
            # A loop returns the handles that it is given.
            pairs = zip(node.outputs, node.inputs)
            same.update(
                (made, given) for made, given in pairs if given in handles
            )
            nodes += _hoisted(node, handles)
        if node.type in _ON_VALUES and node.inputs[0] in handles:
            nodes += _on_value(node)
        nodes.append(node)
    graph.outputs = [same.get(tensor, tensor) for tensor in graph.outputs]
    graph.nodes = nodes
    graph.nodes = ordered(graph)
    return graph


def _on_value(node: Node) -> list[Node]:
    """Rewrites an operation on a handle to one on its value; returns new nodes.

    The node itself becomes the assignment of the result. If the operation only
    reads, a new node takes its place, and the node becomes a `NoOp`.
    """
    handle, dtype = node.inputs[0], _dtype(node)
    read = _read(handle, f"{node.name}/Read", dtype, node.controls)
    value = new_node(_ON_VALUES[node.type], f"{node.name}/Value")
    type_name = "Tparams" if value.type == "GatherNd" else "T"
    kept = {name: node.attr(name) for name in _ATTRIBUTES if node.attr(name)}
    kept.pop("Tparams", None)
    if "StridedSlice" in value.type:
        for name in _MASKS:
            kept[f"{name}_mask"] = node.attr(f"{name}_mask") or 0
    set_attributes(value.definition, {**kept, type_name: dtype})
    value.inputs = [read.outputs[0], *node.inputs[1:]]
    if node.outputs:  # Only reads have outputs.
        value.name, value.outputs = node.name, node.outputs
        for tensor in value.outputs:
            tensor.node = value
        _become(node, "NoOp", [])
        node.outputs, node.controls = [], [value]
        return [read, value]
    value.outputs = [Tensor(value, 0, dtype, read.outputs[0].static)]
    _become(node, "AssignVariableOp", [handle, value.outputs[0]])
    set_attributes(node.definition, {"dtype": dtype, "validate_shape": False})
    node.controls = [*node.controls, read]
    return [read, value]


def _dtype(node: Node) -> tf.DType:
    """Returns the type of the variable that a node reads or changes."""
    if node.outputs:
        return node.outputs[0].dtype
    return node.inputs[-1].dtype


def _become(node: Node, type: str, inputs: list[Tensor]) -> None:
    other = new_node(type, node.name)
    node.type, node.definition, node.inputs = type, other.definition, inputs
    node._names = None


def _read(
    handle: Tensor, name: str, dtype: tf.DType, controls: Collection[Node]
) -> Node:
    read = new_node("ReadVariableOp", name)
    set_attributes(read.definition, {"dtype": dtype})
    read.inputs, read.controls = [handle], list(controls)
    read.outputs = [Tensor(read, 0, dtype, handle.element)]
    return read


def _hoisted(loop: Node, handles: Collection[Tensor]) -> list[Node]:
    """Moves a loop body's reads of handles before the loop; returns them.

    The loop then takes the values in place of the handles. Handles that the
    loop does more with than to read them stay as they are.
    """
    condition, body = loop.bodies
    reads = []
    for number, handle in enumerate(loop.inputs):
        carried = body.inputs[number]
        if handle not in handles or body.outputs[number] is not carried:
            continue
        users = [node for node in body.nodes if carried in node.inputs]
        in_condition = condition.inputs[number]
        if not users or any(in_condition in n.inputs for n in condition.nodes):
            continue
        if any(Trait.READS not in user.traits for user in users):
            continue
        dtypes = {user.outputs[0].dtype for user in users}
        if len(dtypes) > 1:
            continue
        (dtype,) = dtypes
        read = _read(handle, f"{loop.name}/Read_{number}", dtype, loop.controls)
        read.outputs[0].static = users[0].outputs[0].static
        read.outputs[0].shape = read.outputs[0].static
        reads.append(read)
        loop.inputs[number] = read.outputs[0]
        for tensor in (carried, in_condition, loop.outputs[number]):
            tensor.dtype = dtype
            tensor.static = tensor.shape = read.outputs[0].static
        _replace(body, {user.outputs[0]: carried for user in users}, users)
    return reads


def _replace(
    graph: Graph, same: dict[Tensor, Tensor], removed: Collection[Node]
) -> None:
    """Removes nodes; replaces tensors by those that `same` maps them to."""
    graph.nodes = [node for node in graph.nodes if node not in removed]
    graph.effects = [node for node in graph.effects if node not in removed]
    for node in graph.nodes:
        node.inputs = [same.get(tensor, tensor) for tensor in node.inputs]
        node.controls = [c for c in node.controls if c not in removed]
    graph.outputs = [same.get(tensor, tensor) for tensor in graph.outputs]
