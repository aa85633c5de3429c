"""The one-device step as a graph of nodes.

Nodes are in topological order. Bodies of loops and branches are graphs as well.
`reading.py` reads a trace as a graph, `simplification.py` simplifies the graph.
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2
from tensorflow.python.framework import op_def_registry

from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.records import Trait, record
from kerasmgpu.partitioner.step.sizes import Shape, StaticShape

MUST_COMPILE = "_kerasmgpu_compiled"
"""Attribute that marks operations of a function made with `jit_compile=True`.

They must be compiled: some kernels, such as grouped convolutions on CPUs, exist
in XLA only."""

REGIONS = "_kerasmgpu_regions"
"""Attribute of operations that the backward pass is asked to run again: names of
the regions that they are in, from the outermost to the innermost; see
`Node.regions`."""

_DROPPED_ATTRIBUTES = (
    REGIONS,
    "_class",
    "_gradient_op_type",
    "_output_shapes",
    "_XlaCompile",
    "_XlaScope",
)


class Tensor:
    """An output of a node.

    Attributes:
        static: TensorFlow's static shape; `None` if the rank is unknown.
        shape: Tuple of symbolic sizes (see `sizes.py`); `None` if the rank is
            unknown.
        value: The known value of a small integer tensor: a size for a scalar, a
            tuple of sizes for a vector; otherwise `None`.
        element: For a variable's handle the variable's shape, for a list of
            tensors its `elements.Elements`; `None` if unknown.
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
        # A `Value`; readers know whether it is a scalar or a vector.
        self.value: Any = None
        # An `Element`; readers know whether it is a shape or `Elements`.
        self.element: Any = None
        self._symbols: dict[int, sizes.Symbol] = {}

    def __repr__(self) -> str:
        return f"{self.node.name}:{self.index}"

    @property
    def is_narrow(self) -> bool:
        """Whether it holds floats of fewer than 32 bits.

        Partial sums can fit such a type while their total overflows it: they
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
        """Fills unknown sizes of `self.static` from another static shape.

        Sets `shape` to the result, too: sizes known by symbol are lost.
        """
        if self.static is not None:
            static = sizes.filled_in(self.static, static)
        self.static = self.shape = static

    def complete(self) -> None:
        """Replaces each unknown size in `shape` by the symbol of its axis."""
        if self.shape is not None:
            self.shape = tuple(
                sizes.of(self.symbol(axis)) if size is None else size
                for axis, size in enumerate(self.shape)
            )

    def symbol(self, axis: int) -> sizes.Symbol:
        """Returns the symbol for the size of an axis; always the same one."""
        if axis not in self._symbols:
            self._symbols[axis] = sizes.Symbol(f"{self}[{axis}]", (self, axis))
        return self._symbols[axis]


@dataclasses.dataclass(frozen=True)
class Sparse:
    """A sparse tensor among the arguments, as the inputs that hold its parts.

    Attributes:
        indices: `Tensor` `[entries, rank]`.
        values: `Tensor` `[entries]`.
        dense_shape: `Tensor` `[rank]`.
        shape: Its static shape: a tuple of integers and `None`.
    """

    indices: Tensor
    values: Tensor
    dense_shape: Tensor
    shape: tuple


class Node:
    """One operation.

    `definition` is its `NodeDef` without name, inputs and device, `None` for an
    input; `bodies` are the graphs of the functions that it holds, in the order
    of `Record.bodies`. `regions` are the names of the calls, from the outermost
    to the innermost, that `keras.RematScope` asks to compute again.
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
        "regions",
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
        self.regions: tuple[str, ...] = ()
        self._names: list[str] | None = None

    def __repr__(self) -> str:
        return f"{self.type} {self.name}"

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs in a `FunctionDef`: `["out:0"]`."""
        if self._names is None:
            self._names = [name for name, _ in outputs_of(self.definition)]
        return self._names

    @property
    def needs(self) -> list["Node"]:
        """Nodes that it depends on: those of its inputs, then its controls."""
        return [*(tensor.node for tensor in self.inputs), *self.controls]

    @property
    def traits(self) -> frozenset[Trait]:
        """Traits of its type."""
        return record(self.type).traits

    @property
    def is_stateful(self) -> bool:
        """Whether its operation is declared stateful."""
        return op_definition(self.type).is_stateful

    def attr(self, name: str) -> Any:
        """Returns an attribute as a Python value; `None` if it isn't set."""
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


def op_definition(type: str) -> Any:
    """Returns the `OpDef` of a type of operation; `None` if unregistered."""
    if type == "Input":
        return _INPUT
    return op_def_registry.get(type)


def outputs_of(
    definition: node_def_pb2.NodeDef,
) -> list[tuple[str, tf.DType]]:
    """Returns each output's name and type: `("sum:0", tf.float32)`."""
    found = []
    for arg in op_definition(definition.op).output_arg:
        numbers = [arg.type]
        if arg.type_list_attr:
            numbers = definition.attr[arg.type_list_attr].list.type
        elif arg.type_attr:
            numbers = [definition.attr[arg.type_attr].type]
        if arg.number_attr:
            numbers = numbers * definition.attr[arg.number_attr].i
        found += [
            (f"{arg.name}:{index}", tf.as_dtype(number))
            for index, number in enumerate(numbers)
        ]
    return found


class _Input:
    is_stateful = False
    output_arg = ()


_INPUT = _Input()


def new_node(
    type: str, name: str, definition: node_def_pb2.NodeDef | None = None
) -> Node:
    """Creates a node without inputs and outputs.

    Args:
        definition: `NodeDef` to take the attributes and the device from.
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
    """Returns the value of a constant's node as a NumPy array."""
    return tf.make_ndarray(node.definition.attr["value"].tensor)


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
