"""Writes functions as `FunctionDef`s, without TensorFlow's Python graphs.

A `FunctionDef` is a list of nodes. Writing one takes microseconds per node; a
Python graph takes a millisecond per operation.
"""

import contextlib
import heapq
import itertools
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from kerasmgpu.partitioner.lowering.signatures import signature
from kerasmgpu.partitioner.step import graph as graphs
from kerasmgpu.partitioner.step.definitions import (
    Attributes,
    argument,
    node_name,
    set_attributes,
)
from kerasmgpu.partitioner.step.records import Trait, record
from kerasmgpu.partitioner.step.references import Reference

Nodes = Mapping[str, node_def_pb2.NodeDef]
"""Nodes of a function by name."""

_numbers = itertools.count()


class Cursor(NamedTuple):
    """What the nodes that are written now are for.

    Attributes:
        time: `(phase, turn)` in which they will run: a micro-batch's turn, or -1
            before all turns.
        turn: The turn that they belong to, or `None`; see `turns.py`.
        once: Whether they run once for all replicas; `None` where that isn't
            known, or doesn't matter: see `once.py`.
        on_host: Whether they run on the host, whatever their place is; see
            `passes/offload.py`.
        sizes_vary: Whether they have other sizes in every step.
        span: For how many consecutive places a node runs, from its own place on:
            1 if each replica or micro-batch has its own.
        is_same: Whether a node gives all replicas one value.
    """

    time: tuple[int, int] = (0, -1)
    turn: tuple[int, int] | None = None
    once: bool | None = None
    on_host: bool = False
    sizes_vary: bool = False
    span: int = 1
    is_same: bool = False


class Writer:
    """Writes one function.

    Attributes:
        inputs: `Reference`s to its arguments.
        last: Name of the node that was written last, empty without one. Nodes
            that `op` or `constant` reuses don't count.
        on_host: Names of nodes on the host, which compute sizes for instance.
        effects: Names of nodes with side effects, which must run.
        cursor: The `Cursor`, for all views of the function.
        turns: Maps names of nodes to their turns.
        of_once: Maps names of nodes to what `once` was for them, if it was set.
        of_varying_sizes: Names of nodes with other sizes in every step, for
            which XLA would compile them anew.
    """

    def __init__(self) -> None:
        self.inputs: list[Reference] = []
        self.last = ""
        self.on_host: set[str] = set()
        self.effects: list[str] = []
        self.cursor = Cursor()
        self.turns: dict[str, tuple[int, int]] = {}
        self.of_once: dict[str, bool] = {}
        self.of_varying_sizes: set[str] = set()
        self._nodes: dict[str, node_def_pb2.NodeDef] = {}
        self._known: dict[Hashable, list[Reference]] = {}
        self._references: dict[str, Reference] = {}
        self._members: dict[str, Sequence[str]] = {}
        self._number = itertools.count()

    @contextlib.contextmanager
    def at(self, **fields: Any) -> Iterator[None]:
        """Context in which some fields of the cursor are others."""
        before = self.cursor
        self.cursor = before._replace(**fields)
        yield
        self.cursor = before

    def move(self, **fields: Any) -> None:
        """Changes fields of the cursor until the end of the context `at`."""
        self.cursor = self.cursor._replace(**fields)

    def add_input(self, name: str, dtype: tf.DType) -> Reference:
        """Adds an argument to the function; returns the reference to it."""
        name = f"{name}_{len(self.inputs)}"
        reference = Reference(name, dtype, is_on_host=True)
        self.inputs.append(reference)
        self._references[name] = reference
        return reference

    def copy(
        self,
        node: graphs.Node,
        inputs: Sequence[Reference],
        device: str = "",
        prefix: str = "",
        controls: Sequence[str] = (),
        attributes: Attributes | None = None,
        is_on_host: bool = False,
    ) -> list[Reference]:
        """Writes a copy of a node of the one-device graph.

        Args:
            node: `graph.Node`; attributes are taken from it.
            controls: Names of nodes that must run before.
            attributes: Attributes that replace those of the node.

        Returns:
            References to its outputs.
        """
        written = node_def_pb2.NodeDef()
        written.CopyFrom(node.definition)
        if attributes:
            set_attributes(written, attributes)
        types = [tensor.dtype for tensor in node.outputs]
        return self._add(
            written,
            prefix + node.name,
            inputs,
            device,
            controls,
            is_on_host,
            zip(node.output_names, types),
        )

    def op(
        self,
        type: str,
        /,
        inputs: Sequence[Reference],
        device: str = "",
        name: str | None = None,
        controls: Sequence[str] = (),
        is_on_host: bool = False,
        **attributes: Any,
    ) -> list[Reference]:
        """Writes an operation; common subexpressions are written once.

        Not those of stateful operations, or with `controls`: these are written
        each time.

        Args:
            name: Its name; the type by default.
            controls: Names of nodes that must run before.
            **attributes: Attributes that neither its inputs nor its definition
                determine; see `signatures.signature`.

        Returns:
            References to its outputs.
        """
        given = tuple(attributes.items())
        once = None if is_on_host else self.cursor.once
        key = (type, *inputs, given, device, self.cursor.turn, once)
        known = None if controls else self._known.get(key)
        if known is not None:
            return self._placed(known, is_on_host)
        types = tuple([reference.dtype for reference in inputs])
        operation = signature(type, types, given)
        node = node_def_pb2.NodeDef()
        node.CopyFrom(operation.definition)
        references = self._add(
            node,
            name or f"partition/{type}",
            inputs,
            device,
            controls,
            is_on_host,
            operation.outputs,
        )
        if not controls and not operation.is_stateful:
            self._known[key] = references
        return references

    def _placed(
        self, known: list[Reference], is_on_host: bool
    ) -> list[Reference]:
        """Returns references to a written node, with the given `is_on_host`.

        If it is true, the node is recorded as one on the host.
        """
        if not known or known[0].is_on_host == is_on_host:
            return known
        if is_on_host:
            self.on_host.add(known[0].node)
        return [
            Reference(one, one.dtype, one.device, is_on_host) for one in known
        ]

    def barrier(
        self,
        reference: Reference,
        host: str,
        device: str,
        controls: Sequence[str] = (),
    ) -> str:
        """Writes a node that waits for a tensor and nodes; returns its name.

        Args:
            reference: The tensor, which is sent to the host.
            host: Name of the host's device.
            controls: Names of the nodes.
        """
        (batch,) = self.op(
            "Identity", [reference], host, "batch", is_on_host=True
        )
        self.op("NoOp", [], device, "start", [batch.node, *controls])
        return self.last

    def keep_all_or_none(self, references: Sequence[Reference]) -> None:
        """Makes dead-node elimination keep all nodes of a collective, or none.

        They wait for each other: if one is needed, all are. The first of
        `references` is what was made of the first one's output, and so on.
        """
        names = [self._collective(one.node) for one in references]
        self._members.update(dict.fromkeys(names, names))

    def _collective(self, name: str) -> str:
        """Returns the name of the collective whose output became a node's value.

        What becomes of it (a cast, a slice, a shape) can end up in a cluster of
        XLA, under another name.
        """
        while not self._nodes[name].op.startswith("Collective"):
            name = node_name(self._nodes[name].input[0])
        return name

    def constant(
        self,
        array: npt.ArrayLike,
        dtype: tf.DType,
        device: str,
        is_on_host: bool = False,
    ) -> Reference:
        """Writes a constant; returns the reference to it."""
        array = np.asarray(array, dtype.as_numpy_dtype)
        key = ("Const", array.tobytes(), array.shape, dtype, device)
        known = self._known.get(key)
        if known is None:
            value = tf.make_tensor_proto(array, dtype=dtype)
            node = node_def_pb2.NodeDef(op="Const")
            set_attributes(node, {"dtype": dtype, "value": value})
            known = self._known[key] = self._add(
                node,
                "partition/Const",
                (),
                device,
                (),
                is_on_host,
                (("output:0", dtype),),
            )
        return self._placed(known, is_on_host)[0]

    def function(
        self, name: str, outputs: Sequence[str], types: Sequence[tf.DType]
    ) -> function_pb2.FunctionDef:
        """Returns the function, without dead nodes."""
        definition = function_pb2.FunctionDef()
        definition.signature.name = name
        definition.signature.is_stateful = True
        for one in self.inputs:
            definition.signature.input_arg.append(argument(one, one.dtype))
        for number, (reference, dtype) in enumerate(zip(outputs, types)):
            output = f"output_{number}"
            definition.signature.output_arg.append(argument(output, dtype))
            definition.ret[output] = reference
        needed = self.needed_nodes(outputs)
        effects = [n for n in dict.fromkeys(self.effects) if n in needed]
        # A replica's part of a collective whose result only others use: where
        # TensorFlow inlines the function, it would drop the part, and they wait.
        used = {node_name(r) for node in needed.values() for r in node.input}
        used.update(effects, map(node_name, outputs))
        effects += [name for name in needed if name not in used]
        for effect in self._by_device(effects):
            definition.signature.control_output.append(effect)
            definition.control_ret[effect] = effect
            needed[effect] = self._nodes[effect]
        definition.node_def.extend(needed.values())
        return definition

    def _by_device(self, names: Sequence[str]) -> list[str]:
        """Joins control outputs; returns the name of one node per device.

        TensorFlow sends a message between devices for each control output of a
        function.
        """
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(self._nodes[name].device, []).append(name)
        all_done = []
        for device, (done, *others) in groups.items():
            if others:
                self.op("NoOp", [], device, "done", [done, *others])
                done = self.last
            all_done.append(done)
        return all_done

    def needed_nodes(
        self, outputs: Sequence[str]
    ) -> dict[str, node_def_pb2.NodeDef]:
        """Returns `{name: node}` without dead nodes, in order.

        Reads of a variable are dead if no value depends on them; control
        dependencies on them are removed.
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
        """Replaces nodes by others that have been written.

        Args:
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
        """Returns the node of a name."""
        return self._nodes[name]

    def sort(self, twins: Mapping[str, Sequence[str]]) -> None:
        """Sorts the nodes topologically; as far as possible, the order stays.

        Args:
            twins: Maps the name of a node to the names of nodes like it on all
                replicas, its own included; nodes that any of these needs come
                before all of them.

        Raises:
            RuntimeError: If nodes wait for each other.
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
        # Takes the earliest ready node: TensorFlow starts nodes in this order,
        # which bounds memory.
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

    def reference(self, name: str) -> Reference:
        """Returns the `Reference` for a name among written nodes' inputs."""
        return self._references[name]

    def _add(
        self,
        node: node_def_pb2.NodeDef,
        name: str,
        inputs: Sequence[Reference],
        device: str,
        controls: Sequence[str],
        is_on_host: bool,
        outputs: Iterable[tuple[str, tf.DType]],
    ) -> list[Reference]:
        """Adds a node under a unique name; returns references to its outputs."""
        while name in self._nodes:
            name = f"{name}_{next(self._number)}"
        node.name, node.device = name, device
        node.input.extend(inputs)
        if controls:
            node.input.extend([f"^{control}" for control in controls])
        self._nodes[name] = node
        cursor = self.cursor
        if cursor.turn is not None and node.op != "Const":
            self.turns[name] = cursor.turn
        if cursor.once is not None and not is_on_host:
            self.of_once[name] = cursor.once
        if cursor.sizes_vary:
            self.of_varying_sizes.add(name)
        if is_on_host:
            self.on_host.add(name)
        self.last = name
        references = [
            Reference(f"{name}:{output}", dtype, device, is_on_host)
            for output, dtype in outputs
        ]
        self._references.update(zip(references, references))
        return references

    def _needed(
        self, outputs: Sequence[str], effects: Sequence[str]
    ) -> set[str]:
        """Returns names of the nodes that outputs and effects depend on."""
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
    inputs: Sequence[Reference],
    bodies: Sequence[Callable[[Writer, list[Reference]], list[Reference]]],
) -> Attributes:
    """Writes the two functions of an `If`; returns its attributes.

    Args:
        bodies: Functions `(writer, references)`, for the then and the else
            branch, that write the nodes and return references to the outputs.
    """
    functions, types = [], ()
    for body in bodies:
        writer = Writer()
        given = [writer.add_input("given", one.dtype) for one in inputs]
        results = body(writer, given)
        types = tuple(one.dtype for one in results)
        functions.append(f"{name}_{next(_numbers)}")
        library.append(writer.function(functions[-1], results, types))
    return {
        "Tout": types,
        "then_branch": functions[0],
        "else_branch": functions[1],
        "_lower_using_switch_merge": True,
    }
