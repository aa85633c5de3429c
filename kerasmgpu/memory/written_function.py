"""Reads a `FunctionDef` as nodes whose outputs have shapes for one batch."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kerasmgpu.partitioner.step import graph as graphs
from kerasmgpu.partitioner.step.definitions import attribute_value, node_name
from kerasmgpu.partitioner.step.reading import shape_of
from kerasmgpu.partitioner.step.recompute import is_backward_name
from kerasmgpu.replica_arithmetic import ASSUMED_SIZE

Reference = tuple[int, int]
"""Number of a node in its function, and number of the node's output."""


@dataclasses.dataclass(frozen=True)
class Static:
    """Type and shape of a tensor, as far as they are known before the step.

    Attributes:
        shape: Tuple of integers, `None` for unknown sizes; `None` for an
            unknown rank. A handle has the shape of its variable.
        content: `tf.DType` of a handle's variable; `None` for other tensors.
    """

    dtype: tf.DType
    shape: tuple[int | None, ...] | None
    content: tf.DType | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor; unknown sizes are taken as `ASSUMED_SIZE`."""
        if self.dtype in (tf.resource, tf.variant, tf.string):
            return 0  # Handles, lists, and strings, which are on the host.
        total = self.dtype.size
        for size in self.shape or ():
            total *= ASSUMED_SIZE if size is None else size
        return total

    @property
    def is_known(self) -> bool:
        """Whether all sizes are known."""
        return self.shape is not None and None not in self.shape


class WrittenNode:
    """A node of a written function.

    Attributes:
        definition: Its `NodeDef`; an argument's is empty.
        controls: Numbers of nodes that it waits for.
        followers: Numbers of nodes that wait for it, once for each input.
        uses: For each output, how often it is read or returned.
    """

    __slots__ = (
        "name",
        "type",
        "device",
        "definition",
        "inputs",
        "controls",
        "followers",
        "outputs",
        "uses",
    )

    def __init__(self, definition: Any, outputs: list[Static]) -> None:
        self.name, self.type = definition.name, definition.op
        self.device, self.definition = definition.device, definition
        self.inputs: list[Reference] = []
        self.controls: list[int] = []
        self.followers: list[int] = []
        self.outputs = outputs
        self.uses = [0] * len(outputs)

    @property
    def is_backward(self) -> bool:
        """Whether the node's name is one of the backward pass."""
        return is_backward_name(self.name)


class WrittenFunction:
    """Converts a function to nodes, its arguments first.

    Args:
        fallback: Function from a tensor's name in the definition to its shape,
            or `None`. It is called where TensorFlow doesn't infer the shape.

    Attributes:
        returned: List of `Reference`s, the function's results.
        categories: Dictionary from `Reference`s to categories of bytes, for
            those that are known; the caller fills it.
        kept: See `kernels.kept`; the caller sets it.
        fused: See `kernels.fused`; the caller sets it if XLA compiles.
    """

    def __init__(
        self,
        definition: Any,
        given: Sequence[Static],
        fallback: Callable[[str], tuple[int, ...] | None],
    ) -> None:
        self.categories: dict[Reference, str] = {}
        self.kept: set[int] = set()
        self.fused: set[int] = set()
        arguments = [
            tf.compat.v1.NodeDef(name=argument.name, op="_Arg")
            for argument in definition.signature.input_arg
        ]
        self._numbers = {
            node.name: number
            for number, node in enumerate((*arguments, *definition.node_def))
        }
        self._outputs = {
            node.name: graphs.Node(node.name, node.op, node).output_names
            for node in definition.node_def
        }
        self.nodes = [
            WrittenNode(node, [static])
            for node, static in zip(arguments, given)
        ]
        inferred = _inferred(definition, given, self._outputs)
        for node in definition.node_def:
            outputs = []
            for number, output in enumerate(self._outputs[node.name]):
                reference = f"{node.name}:{output}"
                static = inferred[node.name][number]
                if not static.is_known:
                    shape = fallback(reference)
                    if shape is not None:
                        static = dataclasses.replace(static, shape=shape)
                outputs.append(static)
            self.nodes.append(WrittenNode(node, outputs))
        for number, node in enumerate(self.nodes):
            for text in node.definition.input:
                source = self._numbers[node_name(text)]
                self.nodes[source].followers.append(number)
                if text[0] == "^":
                    node.controls.append(source)
                    continue
                one = self.reference(text)
                node.inputs.append(one)
                self.nodes[source].uses[one[1]] += 1
        results = definition.signature.output_arg
        self.returned = [
            self.reference(definition.ret[result.name]) for result in results
        ]
        for source, number in self.returned:
            self.nodes[source].uses[number] += 1

    def reference(self, text: str) -> Reference:
        """Returns the `Reference` for a tensor's name in the definition."""
        name, _, output = text.partition(":")
        number = self._numbers[name]
        if not output:
            return number, 0
        return number, self._outputs[name].index(output)

    def has(self, text: str) -> bool:
        """Whether a tensor's name is of a node or argument of this function."""
        return node_name(text) in self._numbers

    def group_size(self, node: WrittenNode) -> int:
        """Returns the number of members of a collective."""
        constant = self.nodes[node.inputs[1][0]].definition
        return int(tf.make_ndarray(constant.attr["value"].tensor))


def _inferred(
    definition: Any,
    given: Sequence[Static],
    outputs: Mapping[str, list[str]],
) -> Mapping[str, list[Static]]:
    """Returns the `Static`s that TensorFlow infers for each node's outputs."""
    written = tf.compat.v1.GraphDef()
    for argument, static in zip(definition.signature.input_arg, given):
        written.node.append(_argument(argument.name, static))
    by_name = {node.name: node for node in definition.node_def}
    for node in definition.node_def:
        copy = written.node.add()
        copy.CopyFrom(node)
        copy.device = ""
        del copy.input[:]
        for text in node.input:
            name, _, output = text.partition(":")
            if output:
                text = f"{name}:{outputs[name].index(output)}"
            copy.input.append(text)
        _as_known(copy, by_name, written)
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(written, name="")
    return {
        node.name: [
            Static(one.dtype, shape_of(one))
            for one in graph.get_operation_by_name(node.name).outputs
        ]
        for node in definition.node_def
    }


def _argument(name: str, static: Static) -> Any:
    """Returns a placeholder or handle of an argument's type and shape."""
    node = tf.compat.v1.NodeDef(name=name, op="Placeholder")
    shape, dtype, key = static.shape, static.dtype, "shape"
    if static.content is not None:
        node.op, dtype = "VarHandleOp", static.content
    elif dtype in (tf.resource, tf.variant):
        shape = None
    node.attr["dtype"].type = dtype.as_datatype_enum
    node.attr[key].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    return node


def _as_known(
    node: Any,
    by_name: Mapping[str, Any],
    written: Any,
) -> None:
    """Replaces a collective, in place, by an operation of the same shape.

    So TensorFlow infers its shape. Leaves other nodes as they are.

    Args:
        written: `GraphDef`, to which an all-gather's axis is added.
    """
    if not node.op.startswith("Collective"):
        return
    constant = by_name[node_name(node.input[1])]
    size = int(tf.make_ndarray(constant.attr["value"].tensor))
    dtype = node.attr["T"].type
    (value,), controls = node.input[:1], [i for i in node.input if i[0] == "^"]
    node.attr.clear()
    node.attr["T"].type = dtype
    inputs = [value]
    if "Gather" in node.op:
        axis = written.node.add(name=f"{node.name}/axis", op="Const")
        axis.attr["dtype"].type = tf.int32.as_datatype_enum
        zero = tf.make_tensor_proto(np.int32(0))
        axis.attr["value"].CopyFrom(attribute_value(zero))
        node.op, inputs = "ConcatV2", [value] * size + [axis.name]
        node.attr["N"].i = size
        node.attr["Tidx"].type = tf.int32.as_datatype_enum
    else:
        # Stateful: no sizes are computed from one worker's part of a sum.
        node.op = "Print"
        node.attr["U"].list.SetInParent()
    del node.input[:]
    node.input.extend([*inputs, *controls])
