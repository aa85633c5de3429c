"""Infers the shapes of a written function's tensors from those of its arguments.

TensorFlow does it. It doesn't look into the functions of XLA's clusters, so
these are inferred in place of their calls.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kerasmgpu.partitioner.step import graph as graphs
from kerasmgpu.partitioner.step.definitions import (
    attribute_value,
    is_cluster,
    node_name,
)
from kerasmgpu.replica_arithmetic import ASSUMED_SIZE


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


def inferred(
    definition: Any,
    given: Sequence[Static],
    library: Mapping[str, Any],
) -> dict[str, list[tf.Tensor]]:
    """Returns each argument's and node's outputs, as tensors of a new graph."""
    written = tf.compat.v1.GraphDef()
    for argument, static in zip(definition.signature.input_arg, given):
        written.node.append(_argument(argument.name, static))
    results = _Inlining(library, written).add(definition, "", {})
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(written, name="")
    for argument in definition.signature.input_arg:
        results[argument.name] = [f"{argument.name}:0"]
    return {
        name: [graph.get_tensor_by_name(one) for one in outputs]
        for name, outputs in results.items()
    }


class _Inlining:
    """Adds functions to a graph, and clusters in place of their calls."""

    def __init__(self, library: Mapping[str, Any], written: Any) -> None:
        self._library, self._written = library, written

    def add(
        self, definition: Any, scope: str, given: Mapping[str, str]
    ) -> dict[str, list[str]]:
        """Adds the nodes of a function.

        Args:
            scope: String before their names.
            given: Dictionary from names of arguments to the tensors that are
                passed. Default: nodes of these names, which exist.

        Returns:
            Dictionary from names of the nodes to their outputs' names.
        """
        made: dict[str, list[str]] = {}
        by_name = {node.name: node for node in definition.node_def}
        outputs = {
            node.name: graphs.Node(node.name, node.op, node).output_names
            for node in definition.node_def
        }

        def passed(text: str) -> str:
            name, _, output = text.removeprefix("^").partition(":")
            if name not in by_name:
                one = given.get(name, name)
                return f"^{node_name(one)}" if text[0] == "^" else one
            if text[0] == "^":
                return f"^{scope}{name}"
            if is_cluster(by_name[name]):
                # It may stand behind its reader: definitions have no order.
                return f"{scope}{name}/output_{outputs[name].index(output)}"
            return f"{scope}{name}:{outputs[name].index(output)}"

        for node in definition.node_def:
            inputs = [passed(text) for text in node.input]
            if is_cluster(node):
                made[node.name] = self._cluster(node, scope + node.name, inputs)
                continue
            copy = self._written.node.add()
            copy.CopyFrom(node)
            copy.name, copy.device = scope + node.name, ""
            del copy.input[:]
            copy.input.extend(inputs)
            if node.op.startswith("Collective"):
                size = by_name[node_name(node.input[1])].attr["value"].tensor
                _as_known(copy, int(tf.make_ndarray(size)), self._written)
            made[node.name] = [
                f"{copy.name}:{number}"
                for number in range(len(outputs[node.name]))
            ]
        self._results = [
            passed(definition.ret[one.name])
            for one in definition.signature.output_arg
        ]
        return made

    def _cluster(self, node: Any, name: str, inputs: list[str]) -> list[str]:
        """Adds a cluster's function, and a node for each of its results."""
        function = self._library[node.attr["f"].func.name]
        arguments = [one.name for one in function.signature.input_arg]
        controls = [text for text in inputs if text[0] == "^"]
        self.add(function, f"{name}/", dict(zip(arguments, inputs)))
        results = []
        for number, text in enumerate(self._results):
            copy = self._written.node.add(name=f"{name}/output_{number}")
            copy.op = "Identity"
            dtype = function.signature.output_arg[number].type
            copy.attr["T"].type = dtype
            copy.input.extend([text, *controls])
            results.append(copy.name)
        # What waits for the call waits for its results.
        done = self._written.node.add(name=name, op="NoOp")
        done.input.extend([*controls, *(f"^{one}" for one in results)])
        return [f"{one}:0" for one in results]


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


def _as_known(node: Any, size: int, written: Any) -> None:
    """Replaces a collective, in place, by an operation of the same shape.

    So TensorFlow infers its shape.

    Args:
        size: Integer, its members.
        written: `GraphDef`, to which an all-gather's axis is added.
    """
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
