"""Reads a `FunctionDef` as nodes whose outputs have shapes for one batch."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from kerasmgpu.memory.inferred_shapes import Static, inferred
from kerasmgpu.partitioner.step import graph as graphs
from kerasmgpu.partitioner.step.definitions import node_name
from kerasmgpu.partitioner.step.reading import shape_of
from kerasmgpu.partitioner.step.recompute import is_backward_name

Reference = tuple[int, int]
"""Number of a node in its function, and number of the node's output."""


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
        library: Dictionary from names to the `FunctionDef`s that it may call.

    Attributes:
        returned: List of `Reference`s, the function's results.
        effects: List of numbers of nodes that run though no result needs them.
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
        library: Mapping[str, Any],
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
        self._tensors = inferred(definition, given, library)
        for node in definition.node_def:
            outputs = []
            for number, output in enumerate(self._outputs[node.name]):
                reference = f"{node.name}:{output}"
                tensor = self._tensors[node.name][number]
                static = Static(tensor.dtype, shape_of(tensor))
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
        self.effects = [
            self._numbers[name] for name in definition.control_ret.values()
        ]

    @property
    def needed(self) -> set[int]:
        """Numbers of the nodes that remain where TensorFlow inlines the function."""
        waiting = [*self.effects, *(number for number, _ in self.returned)]
        found: set[int] = set()
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                node = self.nodes[number]
                waiting += [*node.controls, *(n for n, _ in node.inputs)]
        return found

    def reference(self, text: str) -> Reference:
        """Returns the `Reference` for a tensor's name in the definition."""
        name, _, output = text.partition(":")
        number = self._numbers[name]
        if not output:
            return number, 0
        return number, self._outputs[name].index(output)

    def tensor(self, reference: Reference) -> tf.Tensor:
        """Returns an output in the graph from which shapes were inferred."""
        number, output = reference
        return self._tensors[self.nodes[number].name][output]

    def has(self, text: str) -> bool:
        """Whether a tensor's name is of a node or argument of this function."""
        return node_name(text) in self._numbers

    def group_size(self, node: WrittenNode) -> int:
        """Returns the number of members of a collective."""
        constant = self.nodes[node.inputs[1][0]].definition
        return int(tf.make_ndarray(constant.attr["value"].tensor))
