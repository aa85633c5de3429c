"""Reads a traced function as a graph; function calls are inlined."""

from collections.abc import Iterable

import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph as functions
from tensorflow.python.framework.func_graph import FuncGraph

from kerasmgpu.partitioner.step import order
from kerasmgpu.partitioner.step.definitions import XLA_MUST_COMPILE
from kerasmgpu.partitioner.step.graph import (
    MUST_COMPILE,
    REGIONS,
    Graph,
    Node,
    Tensor,
    new_node,
    op_definition,
)
from kerasmgpu.partitioner.step.records import Trait, record
from kerasmgpu.partitioner.step.simplification import in_order, simplified
from kerasmgpu.partitioner.step.sizes import StaticShape


def read(func_graph: FuncGraph) -> Graph:
    """Reads a traced function as a graph, orders its effects and simplifies it.

    Returns:
        A `Graph`; its inputs are in the order of `func_graph.inputs`.
    """
    graph = _Reader(func_graph).read()
    order.add_controls(graph)
    return simplified(graph)


def _overstates_sizes(node: Node) -> bool:
    """Whether a node is a branch with static sizes that a body doesn't have.

    TensorFlow's gradient of a branch gives it the shapes of its first body
    (2.18 to 2.21), and the shapes of its consumers follow from these.
    """
    return Trait.BRANCH in node.traits and any(
        not _has_sizes(body.outputs[number].static, tensor.static)
        for number, tensor in enumerate(node.outputs)
        for body in node.bodies
    )


def _has_sizes(shape: StaticShape | None, wanted: StaticShape | None) -> bool:
    """Whether `shape` has all sizes that are known in `wanted`."""
    if wanted is None:
        return True
    return (shape is not None and len(shape) == len(wanted)) and all(
        size is None or size == found for found, size in zip(shape, wanted)
    )


def _forget_sizes(nodes: Iterable[Node]) -> None:
    """Clears static sizes, in bodies too, so that rules infer them."""
    for node in nodes:
        for tensor in node.outputs:
            if tensor.static is not None:
                tensor.static = tensor.shape = (None,) * len(tensor.static)
        for body in node.bodies:
            _forget_sizes([*(t.node for t in body.inputs), *body.nodes])


class _Reader:
    """Turns one `FuncGraph` into nodes; see `read`."""

    def __init__(
        self, func_graph: FuncGraph, doubted: set[Node] | None = None
    ) -> None:
        self._source = func_graph
        # Nodes, inlined ones included, whose static sizes may be wrong.
        self._doubted = set() if doubted is None else doubted
        self._definitions = {
            node.name: node for node in func_graph.as_graph_def().node
        }

    def read(self) -> Graph:
        source = self._source
        tensors, made, doubted = {}, {}, self._doubted
        inputs = []
        for tensor in source.inputs:
            node = Node(tensor.op.name, "Input")
            node.outputs = [Tensor(node, 0, tensor.dtype, shape_of(tensor))]
            made[tensor.op.name] = [node]
            tensors[tensor.op.name] = node.outputs
            inputs.append(node.outputs[0])
        nodes = []
        # Creation order isn't topological where loops get inputs that were
        # created after them.
        operations = source.get_operations()
        # TensorFlow keeps control inputs in sets, whose order differs between
        # processes; workers must write collectives in the same order.
        numbers = {op.name: number for number, op in enumerate(operations)}

        def by_number(controls: Iterable[tf.Operation]) -> list[tf.Operation]:
            return sorted(controls, key=lambda op: numbers[op.name])

        operations = in_order(
            operations,
            lambda op: [
                *(t.op for t in op.inputs),
                *by_number(op.control_inputs),
            ],
        )
        for op in operations:
            if op.name in made:
                continue
            arguments = [tensors[t.op.name][t.value_index] for t in op.inputs]
            controls = [
                node
                for c in by_number(op.control_inputs)
                for node in made[c.name]
            ]
            # An unregistered operation type is a function's name.
            if (
                Trait.CALLS in record(op.type).traits
                or op_definition(op.type) is None
            ):
                results, inner, last = self._inline(op, arguments, controls)
                if not doubted.isdisjoint(t.node for t in arguments):
                    _forget_sizes(inner)
                    doubted.update(inner)
                nodes += inner
                tensors[op.name], made[op.name] = results, [last]
                continue
            node = self._node(op)
            node.inputs, node.controls = (
                arguments,
                list(dict.fromkeys(controls)),
            )
            if not doubted.isdisjoint(t.node for t in arguments):
                _forget_sizes([node])
                doubted.add(node)
            elif _overstates_sizes(node):
                doubted.add(node)
            nodes.append(node)
            tensors[op.name], made[op.name] = node.outputs, [node]
        outputs = [tensors[t.op.name][t.value_index] for t in source.outputs]
        effects = [
            node
            for op in by_number(source.control_outputs)
            for node in made[op.name]
        ]
        return Graph(nodes, inputs, outputs, list(dict.fromkeys(effects)))

    def _regions(self, op: tf.Operation) -> tuple[str, ...]:
        attributes = self._definitions[op.name].attr
        if REGIONS not in attributes:
            return ()
        return tuple(attributes[REGIONS].s.decode().split("/"))

    def _node(self, op: tf.Operation) -> Node:
        node = new_node(op.type, op.name, self._definitions[op.name])
        node.regions = self._regions(op)
        node.outputs = [
            Tensor(node, index, tensor.dtype, shape_of(tensor))
            for index, tensor in enumerate(op.outputs)
        ]
        for attribute in record(op.type).bodies:
            value = self._definitions[op.name].attr[attribute]
            for function in value.list.func or [value.func]:
                shapes = [tensor.shape for tensor in op.inputs]
                if Trait.BRANCH in record(op.type).traits:
                    shapes = shapes[1:]
                node.bodies.append(self._function(function.name, shapes))
        return node

    def _function(self, name: str, shapes: list[tf.TensorShape]) -> Graph:
        """Reads a library function as a graph, for inputs of these shapes."""
        with self._source.as_default():
            definition = functions.get_function_def(name, self._source)
            try:
                func_graph = functions.function_def_to_graph(
                    definition,
                    input_shapes=shapes,
                    include_library_functions=True,
                )
            except ValueError:
                # `MatrixDiag` of sizes that were known when the function was
                # traced and are unknown here (TensorFlow 2.18 to 2.21).
                func_graph = self._source._get_function(name).graph
        return _Reader(func_graph, self._doubted).read()

    def _inline(
        self, op: tf.Operation, arguments: list[Tensor], controls: list[Node]
    ) -> tuple[list[Tensor], list[Node], Node]:
        """Inlines a function call.

        Returns:
            `(results, nodes, last)`: tensors that replace the call's outputs,
            the nodes of its body, and a `NoOp` that runs after all their
            effects.
        """
        definition = self._definitions[op.name]
        name = (
            definition.attr["f"].func.name
            if Trait.CALLS in record(op.type).traits
            else op.type
        )
        body = self._function(name, [t.shape for t in op.inputs])
        if definition.attr[XLA_MUST_COMPILE].b:
            for node in body.nodes:
                node.definition.attr[MUST_COMPILE].b = True
        first = new_node("NoOp", f"{op.name}/start")
        first.controls = list(dict.fromkeys(controls))
        inner = {
            tensor: argument for tensor, argument in zip(body.inputs, arguments)
        }
        nodes = [first] if controls else []
        regions = self._regions(op)
        for node in body.nodes:
            # The function may be called several times.
            own = [f"{op.name}:{region}" for region in node.regions]
            node.regions = (*regions, *own)
            node.name = f"{op.name}/{node.name}"
            node.inputs = [inner.get(tensor, tensor) for tensor in node.inputs]
            node.controls = [c for c in node.controls if c.type != "Input"]
            if controls and (node.is_stateful or not node.inputs):
                node.controls = list(dict.fromkeys([first, *node.controls]))
            nodes.append(node)
        last = new_node("NoOp", f"{op.name}/end")
        last.controls = list(dict.fromkeys([*controls, *body.effects]))
        nodes.append(last)
        results = [inner.get(tensor, tensor) for tensor in body.outputs]
        return results, nodes, last


def shape_of(tensor: tf.Tensor) -> StaticShape | None:
    """Returns a tensor's static shape; `None` if the rank is unknown.

    Unknown sizes in it are `None`.
    """
    shape = tensor.shape
    return None if shape.rank is None else tuple(shape.as_list())
