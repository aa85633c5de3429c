"""Writes functions as `FunctionDef`s, without TensorFlow's Python graphs.

A `FunctionDef` is a list of nodes. Writing one takes microseconds per node; a
Python graph takes a millisecond per operation.
"""

import heapq
import itertools
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.core.framework import (
    function_pb2,
    node_def_pb2,
)

from kerasmgpu.partitioner.step import graph as graphs
from kerasmgpu.partitioner.step.definitions import (
    Attributes,
    argument,
    function_attribute,
    node_name,
    set_attributes,
)
from kerasmgpu.partitioner.step.records import Trait, record

_numbers = itertools.count()


class Writer:
    """Writes one function.

    References to tensors are strings: `"node:output:0"`, or the name of an
    input.

    Attributes:
        inputs: List of `(reference, dtype)`.
        last: Name of the node that was written last, empty without one.
        on_host: Names of nodes on the host, which compute sizes for instance.
        effects: Names of nodes with side effects, which must run.
        turn: The turn that nodes are written for; see `turns.py`.
        turns: Names of nodes with the turn that each belongs to.
        sizes_vary: Whether what is written now has other sizes in every step.
        of_varying_sizes: Names of such nodes, which XLA would compile anew.
    """

    def __init__(self) -> None:
        self.inputs: list[tuple[str, tf.DType]] = []
        self.last = ""
        self.on_host: set[str] = set()
        self.effects: list[str] = []
        self.turn: tuple[int, int] | None = None
        self.turns: dict[str, tuple[int, int]] = {}
        self.sizes_vary = False
        self.of_varying_sizes: set[str] = set()
        self._nodes: dict[str, node_def_pb2.NodeDef] = {}
        self._known: dict[Hashable, list[str]] = {}
        self._members: dict[str, Sequence[str]] = {}
        self._number = itertools.count()

    def add_input(self, name: str, dtype: tf.DType) -> str:
        """Adds an input to the function; returns the reference to it."""
        reference = f"{name}_{len(self.inputs)}"
        self.inputs.append((reference, dtype))
        return reference

    def device(self, reference: str) -> str | None:
        """Device of the node that computes a tensor; `None` for inputs."""
        node = self._nodes.get(reference.split(":", 1)[0])
        return None if node is None else node.device

    def copy(
        self,
        node: graphs.Node,
        inputs: Sequence[str],
        device: str,
        prefix: str,
        controls: Sequence[str] = (),
        attributes: Attributes | None = None,
    ) -> list[str]:
        """Writes a copy of a node of the one-device graph.

        Args:
            node: `graph.Node`; attributes are taken from it.
            inputs: References, in the order of its inputs.
            device: Name of the device.
            prefix: Prefix of the copy's name.
            controls: Names of nodes that must run before.
            attributes: Attributes that replace those of the node.

        Returns:
            References to its outputs.
        """
        written = node_def_pb2.NodeDef()
        written.CopyFrom(node.definition)
        set_attributes(written, attributes or {})
        name = self._add(written, prefix + node.name, inputs, device, controls)
        return [f"{name}:{output}" for output in node.output_names]

    def op(
        self,
        type: str,
        inputs: Sequence[str],
        attributes: Attributes,
        device: str,
        name: str | None = None,
        controls: Sequence[str] = (),
    ) -> list[str]:
        """Writes an operation; common subexpressions are written once.

        Args:
            type: Type of the operation.
            inputs: References.
            attributes: Attributes by name.
            device: Name of the device.
            name: Its name; the type by default.
            controls: Names of nodes that must run before.

        Returns:
            References to its outputs.
        """
        key = None
        if not controls and not graphs.op_definition(type).is_stateful:
            key = (type, *inputs, repr(attributes), device, self.turn)
            if key in self._known:
                return self._known[key]
        node = graphs.new_node(type, name or type)
        set_attributes(node.definition, attributes)
        written = self._add(
            node.definition,
            name or f"partition/{type}",
            inputs,
            device,
            controls,
        )
        references = [f"{written}:{output}" for output in node.output_names]
        if key is not None:
            self._known[key] = references
        return references

    def barrier(
        self,
        reference: str,
        dtype: tf.DType,
        host: str,
        device: str,
        controls: Sequence[str] = (),
    ) -> str:
        """Writes a node that runs once a tensor is computed; returns its name."""
        (batch,) = self.op("Identity", [reference], {"T": dtype}, host, "batch")
        controls = [node_name(batch), *controls]
        self.op("NoOp", [], {}, device, "start", controls)
        return self.last

    def keep_all_or_none(self, names: Sequence[str]) -> None:
        """Excludes parts of a collective from dead-node elimination.

        The nodes wait for each other: if one is needed, all are.

        Args:
            names: Names of the collective's nodes.
        """
        for name in names:
            self._members[name] = names

    def constant(
        self, array: npt.ArrayLike, dtype: tf.DType, device: str
    ) -> str:
        """Writes a constant; returns the reference to it."""
        dtype = tf.as_dtype(dtype)
        array = np.asarray(array, dtype.as_numpy_dtype)
        key = ("Const", array.tobytes(), array.shape, dtype, device)
        if key not in self._known:
            proto = tf.make_tensor_proto(array, dtype=dtype)
            self._known[key] = self.op(
                "Const", [], {"dtype": dtype, "value": proto}, device
            )
        return self._known[key][0]

    def function(
        self, name: str, outputs: Sequence[tuple[str, tf.DType]]
    ) -> function_pb2.FunctionDef:
        """Returns the function, without dead nodes.

        Args:
            name: Its name.
            outputs: List of `(reference, dtype)`.
        """
        definition = function_pb2.FunctionDef()
        definition.signature.name = name
        definition.signature.is_stateful = True
        for reference, dtype in self.inputs:
            definition.signature.input_arg.append(argument(reference, dtype))
        for number, (reference, dtype) in enumerate(outputs):
            output = f"output_{number}"
            definition.signature.output_arg.append(argument(output, dtype))
            definition.ret[output] = reference
        needed = self.needed_nodes([reference for reference, _ in outputs])
        effects = dict.fromkeys(self.effects)
        for effect in self._by_device([n for n in effects if n in needed]):
            definition.signature.control_output.append(effect)
            definition.control_ret[effect] = effect
            needed[effect] = self._nodes[effect]
        definition.node_def.extend(needed.values())
        return definition

    def _by_device(self, names: Sequence[str]) -> list[str]:
        """Joins control outputs: names of one node per device.

        TensorFlow sends a message between devices for each control output of a
        function.
        """
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(self._nodes[name].device, []).append(name)
        all_done = []
        for device, (done, *others) in groups.items():
            if others:
                self.op("NoOp", [], {}, device, "done", [done, *others])
                done = self.last
            all_done.append(done)
        return all_done

    def needed_nodes(
        self, outputs: Sequence[str]
    ) -> dict[str, node_def_pb2.NodeDef]:
        """`{name: node}` without dead nodes, in order.

        Reads of a variable are dead if no value depends on them; control
        dependencies on them are removed.

        Args:
            outputs: References to the function's outputs.
        """
        effects = [
            name
            for name in self.effects
            if Trait.READ_ONLY not in record(self._nodes[name].op).traits
        ]
        needed = self._needed(outputs, effects)
        for name in needed:
            node = self._nodes[name]
            dead = [
                reference
                for reference in node.input
                if reference[0] == "^" and reference[1:] not in needed
            ]
            for reference in dead:
                node.input.remove(reference)
        return {
            name: node for name, node in self._nodes.items() if name in needed
        }

    def replace(
        self, names: Collection[str], replacements: Mapping[str, str]
    ) -> None:
        """Removes nodes whose replacements have been written.

        Args:
            names: Names of the nodes.
            replacements: Maps references to their outputs, and control
                dependencies on them, to the new ones.
        """
        for name in names:
            del self._nodes[name]
        for node in self._nodes.values():
            inputs = [replacements.get(r, r) for r in node.input]
            if inputs != list(node.input):
                del node.input[:]
                node.input.extend(inputs)
        self.effects = list(
            dict.fromkeys(
                replacements.get(f"^{name}", f"^{name}")[1:]
                for name in self.effects
            )
        )

    @property
    def nodes(self) -> list[node_def_pb2.NodeDef]:
        """All nodes, in their order."""
        return list(self._nodes.values())

    def node(self, name: str) -> node_def_pb2.NodeDef:
        """The node of a name."""
        return self._nodes[name]

    def sort(self, twins: Mapping[str, Sequence[str]]) -> None:
        """Sorts the nodes: what one needs stands before it.

        Args:
            twins: For nodes that are compared, those that they are compared
                with; what one needs stands before all.
        """
        names = list(self._nodes)
        number = {name: position for position, name in enumerate(names)}
        needs: dict[int, set[int]] = {}
        needed_by: list[list[int]] = [[] for _ in names]
        for name, position in number.items():
            needs[position] = {
                number[source]
                for twin in twins.get(name, [name])
                if twin in number
                for source in map(node_name, self._nodes[twin].input)
                if source in number
            }
            for source in needs[position]:
                needed_by[source].append(position)
        ready = [position for position in needs if not needs[position]]
        done: dict[str, node_def_pb2.NodeDef] = {}
        # Of what can run the first: the order decides what TensorFlow runs
        # first, and so what it holds at a time.
        while ready:
            position = heapq.heappop(ready)
            done[names[position]] = self._nodes[names[position]]
            for other in needed_by[position]:
                needs[other].remove(position)
                if not needs[other]:
                    heapq.heappush(ready, other)
        if len(done) < len(names):
            raise RuntimeError(
                f"{len(names) - len(done)} nodes wait for each other, "
                f"{next(name for name in names if name not in done)!r} is one."
            )
        self._nodes = done

    def dtype(self, reference: str) -> tf.DType:
        """Type of the tensor that a reference is to."""
        if ":" not in reference:
            return dict(self.inputs)[reference]
        name, output, index = reference.split(":")
        return graphs.output_type(self._nodes[name], output, int(index))

    def _add(
        self,
        node: node_def_pb2.NodeDef,
        name: str,
        inputs: Sequence[str],
        device: str,
        controls: Sequence[str],
    ) -> str:
        """Adds a node under a unique name; returns the name."""
        while name in self._nodes:
            name = f"{name}_{next(self._number)}"
        node.name, node.device = name, device
        node.input.extend(inputs)
        node.input.extend(f"^{control}" for control in controls)
        self._nodes[name] = node
        if self.turn is not None and node.op != "Const":
            self.turns[name] = self.turn
        if self.sizes_vary:
            self.of_varying_sizes.add(name)
        self.last = name
        return name

    def _needed(
        self, outputs: Sequence[str], effects: Sequence[str]
    ) -> set[str]:
        """Names of the nodes that outputs and effects depend on."""
        needed: set[str] = set()
        waiting = [*map(node_name, outputs), *effects]
        while waiting:
            name = waiting.pop()
            if name in needed or name not in self._nodes:
                continue
            needed.add(name)
            waiting += self._members.get(name, ())
            for reference in self._nodes[name].input:
                other = node_name(reference)
                if reference[0] != "^" or not self._is_read(other):
                    waiting.append(other)
        return needed

    def _is_read(self, name: str) -> bool:
        """Whether a node only reads a variable."""
        return (
            name in self._nodes
            and Trait.READ_ONLY in record(self._nodes[name].op).traits
        )


def branches(
    library: list[function_pb2.FunctionDef],
    name: str,
    inputs: Sequence[tf.DType],
    outputs: Sequence[tf.DType],
    bodies: Sequence[Callable[[Writer, list[str]], Sequence[str]]],
) -> dict[str, Any]:
    """Writes the two functions of an `If`; returns its attributes.

    Args:
        library: List that the functions are added to.
        name: Prefix of their names.
        inputs: Types of their inputs.
        outputs: Types of their outputs.
        bodies: Functions `(writer, references)`, for the then and the else
            branch, that write the nodes and return references to the outputs.
    """
    functions = []
    for body in bodies:
        writer = Writer()
        references = [writer.add_input("given", dtype) for dtype in inputs]
        results = list(zip(body(writer, references), outputs))
        functions.append(f"{name}_{next(_numbers)}")
        library.append(writer.function(functions[-1], results))
    return {
        "Tcond": tf.bool,
        "Tin": list(inputs),
        "Tout": list(outputs),
        "then_branch": function_attribute(functions[0]),
        "else_branch": function_attribute(functions[1]),
        "_lower_using_switch_merge": True,
    }
