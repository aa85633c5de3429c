"""The one-device step as a graph of nodes: reading and simplification.

`read` turns a traced function into a `Graph`: function calls are inlined,
common subexpressions are merged, dead nodes are removed, and nodes are in
topological order. Bodies of loops and branches are graphs as well.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2
from tensorflow.python.framework import function_def_to_graph as functions
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework.func_graph import FuncGraph

from kerasmgpu.partitioner import order, sizes
from kerasmgpu.partitioner.records import Trait, record

if TYPE_CHECKING:
    from kerasmgpu.partitioner.elements import Elements

StaticShape: TypeAlias = tuple[int | None, ...]
"""Sizes of axes; `None` stands for one that TensorFlow doesn't know."""

Shape: TypeAlias = tuple[sizes.SizeLike | None, ...]
"""Sizes of axes, by symbol too; `None` stands for an unknown size."""

Value: TypeAlias = sizes.SizeLike | Shape | None
"""A known scalar or vector of integers; see `Tensor`."""

Element: TypeAlias = "Shape | Elements | None"
"""Contents of a resource or a list; see `Tensor`."""

T = TypeVar("T")


MUST_COMPILE = "_kerasmgpu_compiled"
"""Attribute of operations of a function that is made with `jit_compile=True`:
some kernels, such as grouped convolutions on CPUs, exist in XLA only."""

_DROPPED_ATTRIBUTES = (
    "_class",
    "_gradient_op_type",
    "_output_shapes",
    "_XlaCompile",
    "_XlaScope",
)


class Tensor:
    """An output of a node.

    `shape` is a tuple of sizes (see `sizes.py`), or `None` where the rank is
    not known; `static` is TensorFlow's static shape. `value` is the
    known value of a small integer tensor: a size for a scalar, a tuple of sizes for a
    vector, `None` otherwise. `element` is the shape of the variable of a
    handle, or the `elements.Elements` of a list of tensors.
    """

    __slots__ = (
        "node",
        "index",
        "dtype",
        "static",
        "shape",
        "value",
        "element",
        "_symbols",
    )

    def __init__(
        self,
        node: "Node",
        index: int,
        dtype: tf.DType,
        shape: "StaticShape | None" = None,
    ) -> None:
        self.node = node
        self.index = index
        self.dtype = dtype
        self.static: StaticShape | sizes.MaybeNone = shape
        self.shape: Shape | sizes.MaybeNone = shape
        # A `Value`, of which readers know the member.
        self.value: Any = None
        # An `Element`, of which readers know the member.
        self.element: Any = None
        self._symbols: dict[int, sizes.Symbol] = {}

    def __repr__(self) -> str:
        return f"{self.node.name}:{self.index}"

    @property
    def is_narrow(self) -> bool:
        """Whether it holds floats of fewer than 32 bits.

        Partial sums may fit such a type although their total overflows it: they
        are added in 32 bits and then cast, as on one device.
        """
        return self.dtype.is_floating and self.dtype.size < 4

    @property
    def rank(self) -> int | None:
        """Number of axes; `None` if unknown."""
        return None if self.shape is None else len(self.shape)

    @property
    def num_elements(self) -> sizes.SizeLike | None:
        """Number of elements; `None` if unknown."""
        return None if self.shape is None else sizes.product(self.shape)

    @property
    def num_bytes(self) -> float:
        """Number of bytes; infinity if it isn't known statically."""
        elements = self.num_elements
        if not isinstance(elements, int):
            return float("inf")
        return elements * self.dtype.size

    def learn(self, static: "StaticShape | None") -> None:
        """Merges another static shape of the same tensor into this one."""
        if self.static is not None:
            static = sizes.filled_in(self.static, static)
        self.static = self.shape = static

    def complete(self) -> None:
        """Gives each axis of unknown size a new symbol."""
        if self.shape is not None:
            self.shape = tuple(
                sizes.of(self.symbol(axis)) if size is None else size
                for axis, size in enumerate(self.shape)
            )

    def symbol(self, axis: int) -> sizes.Symbol:
        """The symbol for the size of an axis of unknown size."""
        if axis not in self._symbols:
            self._symbols[axis] = sizes.Symbol(f"{self}[{axis}]", (self, axis))
        return self._symbols[axis]


class Node:
    """One operation.

    `definition` is its `NodeDef` without name, inputs and device; `bodies` are
    the graphs of the functions that it holds, in the order of `Record.bodies`.
    """

    __slots__ = (
        "name",
        "type",
        "inputs",
        "controls",
        "outputs",
        "definition",
        "device",
        "bodies",
        "_names",
    )

    def __init__(
        self,
        name: str,
        type: str,
        definition: node_def_pb2.NodeDef | None = None,
        device: str = "",
    ) -> None:
        self.name = name
        self.type = type
        self.inputs: list[Tensor] = []
        self.controls: list[Node] = []
        self.outputs: list[Tensor] = []
        # An input has none.
        self.definition: node_def_pb2.NodeDef = definition
        self.device = device
        self.bodies: list[Graph] = []
        self._names: list[str] | None = None

    def __repr__(self) -> str:
        return f"{self.type} {self.name}"

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs in a `FunctionDef`: `["out:0"]`."""
        if self._names is None:
            self._names = _output_names(self)
        return self._names

    @property
    def needs(self) -> list["Node"]:
        """Nodes of its data and control inputs."""
        return [*(tensor.node for tensor in self.inputs), *self.controls]

    @property
    def is_stateful(self) -> bool:
        """Whether its operation is declared stateful."""
        return op_definition(self.type).is_stateful

    def attr(self, name: str) -> Any:
        """An attribute as a Python value; `None` if it isn't set."""
        if name not in self.definition.attr:
            return None
        return _python_value(self.definition.attr[name])


class Graph:
    """Nodes in topological order.

    `inputs` and `outputs` are lists of `Tensor`; an input's node has the type
    `"Input"`. `effects` are the nodes that must run even if their outputs
    are unused.
    """

    def __init__(
        self,
        nodes: list[Node],
        inputs: list[Tensor],
        outputs: list[Tensor],
        effects: list[Node],
    ) -> None:
        self.nodes = nodes
        self.inputs = inputs
        self.outputs = outputs
        self.effects = effects


def read(func_graph: FuncGraph) -> Graph:
    """Reads a traced function.

    Args:
        func_graph: `FuncGraph`, as a `tf.function`'s trace has it.

    Returns:
        A `Graph`; its inputs are in the order of `func_graph.inputs`.
    """
    graph = _Reader(func_graph).read()
    order.add_controls(graph)
    return simplified(graph)


def op_definition(type: str) -> Any:
    """The `OpDef` of a type of operation."""
    if type == "Input":
        return _INPUT
    return op_def_registry.get(type)


def output_type(
    definition: node_def_pb2.NodeDef, output: str, index: int
) -> tf.DType:
    """Type of an output of a `NodeDef`.

    Args:
        definition: `NodeDef`.
        output: Name of the output in the `OpDef`.
        index: Number of the tensor in it.
    """
    for arg in op_definition(definition.op).output_arg:
        if arg.name != output:
            continue
        if arg.type_list_attr:
            number = definition.attr[arg.type_list_attr].list.type[index]
        elif arg.type_attr:
            number = definition.attr[arg.type_attr].type
        else:
            number = arg.type
        return tf.as_dtype(number)
    raise KeyError(f"{definition.op} has no output {output!r}.")


class _Input:
    is_stateful = False
    output_arg = ()


_INPUT = _Input()


def _overstates_sizes(node: Node) -> bool:
    """Whether a branch's static sizes are more specific than its bodies'.

    TensorFlow's gradient of a branch gives it the shapes of its first body
    (2.18 to 2.21), and the shapes of its consumers follow from these.
    """
    return Trait.BRANCH in record(node.type).traits and any(
        not _has_sizes(body.outputs[number].static, tensor.static)
        for number, tensor in enumerate(node.outputs)
        for body in node.bodies
    )


def _has_sizes(shape: StaticShape | None, wanted: StaticShape | None) -> bool:
    """Whether a static shape knows all sizes that another one knows."""
    if wanted is None:
        return True
    return (shape is not None and len(shape) == len(wanted)) and all(
        size is None or size == found for found, size in zip(shape, wanted)
    )


def _forget_sizes(nodes: Iterable[Node]) -> None:
    """Clears the static sizes of nodes, so that the rules infer them."""
    for node in nodes:
        for tensor in node.outputs:
            if tensor.static is not None:
                tensor.static = tensor.shape = (None,) * len(tensor.static)
        for body in node.bodies:
            _forget_sizes([*(t.node for t in body.inputs), *body.nodes])


def _output_names(node: Node) -> list[str]:
    names = []
    for arg in op_definition(node.type).output_arg:
        if arg.number_attr:
            count = node.definition.attr[arg.number_attr].i
        elif arg.type_list_attr:
            count = len(node.definition.attr[arg.type_list_attr].list.type)
        else:
            count = 1
        names += [f"{arg.name}:{index}" for index in range(count)]
    return names


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

        def in_order(controls: Iterable[tf.Operation]) -> list[tf.Operation]:
            return sorted(controls, key=lambda op: numbers[op.name])

        operations = _in_order(
            operations,
            lambda op: [
                *(t.op for t in op.inputs),
                *in_order(op.control_inputs),
            ],
        )
        for op in operations:
            if op.name in made:
                continue
            arguments = [tensors[t.op.name][t.value_index] for t in op.inputs]
            controls = [
                node
                for c in in_order(op.control_inputs)
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
            node.inputs, node.controls = arguments, _unique(controls)
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
            for op in in_order(source.control_outputs)
            for node in made[op.name]
        ]
        return Graph(nodes, inputs, outputs, _unique(effects))

    def _node(self, op: tf.Operation) -> Node:
        node = new_node(op.type, op.name, self._definitions[op.name])
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
        """The graph of a function of the library."""
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
            the nodes, and a `NoOp` that runs after all effects.
        """
        definition = self._definitions[op.name]
        name = (
            definition.attr["f"].func.name
            if Trait.CALLS in record(op.type).traits
            else op.type
        )
        body = self._function(name, [t.shape for t in op.inputs])
        if definition.attr["_XlaMustCompile"].b:
            for node in body.nodes:
                node.definition.attr[MUST_COMPILE].b = True
        first = new_node("NoOp", f"{op.name}/start")
        first.controls = _unique(controls)
        inner = {
            tensor: argument for tensor, argument in zip(body.inputs, arguments)
        }
        nodes = [first] if controls else []
        for node in body.nodes:
            node.name = f"{op.name}/{node.name}"
            node.inputs = [inner.get(tensor, tensor) for tensor in node.inputs]
            node.controls = [c for c in node.controls if c.type != "Input"]
            if controls and (node.is_stateful or not node.inputs):
                node.controls = _unique([first, *node.controls])
            nodes.append(node)
        last = new_node("NoOp", f"{op.name}/end")
        last.controls = _unique([*controls, *body.effects])
        nodes.append(last)
        results = [inner.get(tensor, tensor) for tensor in body.outputs]
        return results, nodes, last


def new_node(
    type: str, name: str, definition: node_def_pb2.NodeDef | None = None
) -> Node:
    """A node with an empty list of inputs and outputs.

    Args:
        type: Type of the operation.
        name: Its name in messages and dumps.
        definition: `NodeDef` to take the attributes from.
    """
    template = node_def_pb2.NodeDef(op=type)
    device = ""
    if definition is not None:
        device = definition.device
        for key, value in definition.attr.items():
            if key not in _DROPPED_ATTRIBUTES:
                template.attr[key].CopyFrom(value)
    return Node(name, type, template, device)


def constant_array(node: Node) -> np.ndarray:
    """The NumPy array of a constant."""
    return tf.make_ndarray(node.definition.attr["value"].tensor)


def shape_of(tensor: tf.Tensor) -> StaticShape | None:
    """The static shape of a `tf.Tensor`; `None` for unknown sizes or rank."""
    shape = tensor.shape
    return None if shape.rank is None else tuple(shape.as_list())


def simplified(graph: Graph) -> Graph:
    """Common-subexpression and dead-node elimination, bodies included."""
    graph = without_dead_nodes(_merged(_without_memory_hints(graph)))
    for node in graph.nodes:
        node.bodies = [simplified(body) for body in node.bodies]
    return graph


def _without_memory_hints(graph: Graph) -> Graph:
    """Drops control dependencies on nodes that can neither fail nor have effects.

    TensorFlow's gradients make small constants wait for other gradients, to save
    memory. Each would cost a message between devices.
    """
    waited_for = set()
    for node in graph.nodes:
        if (
            not waited_for.isdisjoint(node.needs)
            or (
                node.is_stateful
                and Trait.READ_ONLY not in record(node.type).traits
            )
            or node.bodies
            or Trait.CHECKS in record(node.type).traits
        ):
            waited_for.add(node)
        if not node.is_stateful and node.type != "NoOp":
            node.controls = [c for c in node.controls if c in waited_for]
    return graph


def without_dead_nodes(graph: Graph) -> Graph:
    """Dead-node elimination."""
    needed = _needed(graph)
    graph.nodes = [node for node in graph.nodes if node in needed]
    return graph


def ordered(graph: Graph) -> list[Node]:
    """The nodes of a graph in topological order, without inputs."""
    nodes = _in_order(graph.nodes, lambda node: node.needs)
    return [node for node in nodes if node.type != "Input"]


def _merged(graph: Graph) -> Graph:
    """Common-subexpression elimination."""
    same, representative, known = {}, {}, {}

    def now(tensor: Tensor) -> Tensor:
        return same.get(tensor, tensor)

    for node in graph.nodes:
        node.inputs = [now(tensor) for tensor in node.inputs]
        node.controls = _unique(
            [representative.get(c, c) for c in node.controls]
        )
        if Trait.PASSES in record(node.type).traits and not node.controls:
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
    graph.effects = _unique([representative.get(n, n) for n in graph.effects])
    return graph


def _can_merge(node: Node) -> bool:
    # Reads of a variable after the same assignment are equal; automatic
    # control dependencies name the assignment, and are part of the key.
    if Trait.READS in record(node.type).traits:
        return True
    if Trait.MAKES_LIST in record(node.type).traits:
        return False  # Elements are inserted later, and may differ.
    return not node.is_stateful and not node.bodies


def _needed(graph: Graph) -> set[Node]:
    """Ancestors of outputs and effects."""
    needed = set()
    waiting = [tensor.node for tensor in graph.outputs] + list(graph.effects)
    while waiting:
        node = waiting.pop()
        if node in needed:
            continue
        needed.add(node)
        waiting += node.needs
    return needed


def _in_order(items: Iterable[T], needs: Callable[[T], Iterable[T]]) -> list[T]:
    """Sorts items topologically, and otherwise keeps their order.

    Args:
        items: Hashable items.
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


def _unique(items: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(items))


def _python_value(value: attr_value_pb2.AttrValue) -> Any:
    field = value.WhichOneof("value")
    if field == "type":
        return tf.as_dtype(value.type)
    if field == "s":
        return value.s.decode("latin-1")
    if field == "list":
        listed = value.list
        if listed.type:
            return [tf.as_dtype(number) for number in listed.type]
        if listed.s:
            return [text.decode("latin-1") for text in listed.s]
        return list(listed.i or listed.f or listed.b or listed.shape)
    if field == "shape":
        if value.shape.unknown_rank:
            return None
        return tuple(
            None if dimension.size < 0 else dimension.size
            for dimension in value.shape.dim
        )
    return None if field is None else getattr(value, field)
