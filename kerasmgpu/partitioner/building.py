"""The function of all replicas while it is written: references, operations."""

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy.typing as npt
import tensorflow as tf
from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.compilation import compile_clusters
from kerasmgpu.partitioner.graph import MUST_COMPILE, Node, Tensor
from kerasmgpu.partitioner.host_sizes import HostSizes
from kerasmgpu.partitioner.ir.instructions import Instruction, Value, value
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.kinds import PER_WORKER, Kind, PerReplica, Rows
from kerasmgpu.partitioner.places import HOST, OnEachPlace
from kerasmgpu.partitioner.records import Trait, record
from kerasmgpu.partitioner.turns import assign_last, take_turns
from kerasmgpu.partitioner.writing import Attributes, Writer, node_name

if TYPE_CHECKING:
    from kerasmgpu.partitioner.compute_time import Clock
    from kerasmgpu.partitioner.replicas import Replicas

References = Sequence[str] | OnEachPlace
"""References to a value, one per replica of this process."""

_Made = TypeVar("_Made", str, list[str])
_Kept = TypeVar("_Kept")


class Build:
    """A function while it is written.

    A value is a sequence of references, one per replica of this process. If all
    are the same, the value is on one device, and TensorFlow sends it to the
    others.

    Args:
        program: The `ir.lowered.Lowered` that is written.
        library: List that functions of loops and branches are added to.
        parent: The `Build` of the enclosing function, or `None`.
        is_compiled: Whether XLA compiles the replicas' operations.

    Attributes:
        writer: The function's `writing.Writer`.
        sizes: Its `host_sizes.HostSizes`.
        clock: The `compute_time.Clock` of the function, or `None`.
        last_collective: For each place the name of the last collective.
        time: When what is written now runs: a phase, a micro-batch's turn in
            it, or -1 before all turns; see `order_collectives`.
        twins: Maps nodes that replicas run on their own copies of one value
            (`Runs.ON_COPIES`) to the nodes of all replicas.
        captures: `{id: (tensor, reference)}` of captured eager tensors.
        span: How many micro-batches, from its place on, a node is written for.
        assigns_last: Whether variables are assigned when all else is computed.
    """

    def __init__(
        self,
        program: Lowered,
        library: list[function_pb2.FunctionDef],
        parent: "Build | None" = None,
        is_compiled: bool = False,
    ) -> None:
        self.is_compiled = is_compiled
        self.program = program
        self.graph = program.graph
        self.replicas = program.replicas
        self.library = library
        self.parent = parent
        self.writer = Writer()
        self.sizes = HostSizes(self)
        self._natural: dict[Tensor, Value] = {}
        self._values: dict[Value, References] = {}
        self._done: dict[Node, list[str]] = {}
        self._ran: dict[Instruction, list[str]] = {}
        self.clock: Clock | None = None
        self.last_collective: dict[int, str | None] = {}
        self.time: tuple[int, int] = (0, -1)
        self._collectives: list[tuple[tuple[int, int], int, str]] = []
        self.twins: dict[str, list[str]] = {}
        self.captures: dict[int, tuple[tf.Tensor, str]] = {}
        self._kept: dict[Hashable, Any] = {}
        self._batch: tuple[str, tf.DType] | None = None
        self._required: list[str] = []
        self._phases = program.phases
        self.span = 1
        self.assigns_last = False

    def compiles(self, node: Node) -> bool:
        """Whether XLA compiles a node's operations."""
        return self.is_compiled or MUST_COMPILE in node.definition.attr

    # Operations, as rules write them -----------------------------------------

    def op(
        self,
        type: str,
        inputs: Sequence[str],
        attributes: Attributes,
        place: int,
        name: str | None = None,
        controls: Sequence[str] = (),
    ) -> list[str]:
        """Writes an operation at a place; see `writing.Writer.op`."""
        return self._hosted(
            place,
            self.writer.op(
                type, inputs, attributes, self.device(place), name, controls
            ),
        )

    def _hosted(self, place: int, made: _Made) -> _Made:
        """Records nodes on the host; returns the references to them."""
        # `Writer.last` is another node if an equal one was written before.
        if place == HOST:
            references = [made] if isinstance(made, str) else made
            names = {node_name(reference) for reference in references}
            self.writer.on_host |= names or {self.writer.last}
        return made

    def copy(
        self, node: Node, inputs: Sequence[str], place: int, **attributes: Any
    ) -> list[str]:
        """Writes a node of the graph with new inputs, or attributes."""
        prefix = "host/" if place == HOST else f"replica_{place}/"
        controls = self.controls(node, place)
        return self._hosted(
            place,
            self.writer.copy(
                node, inputs, self.device(place), prefix, controls, attributes
            ),
        )

    def constant(
        self, array: npt.ArrayLike, dtype: tf.DType, place: int
    ) -> str:
        """Writes a constant."""
        return self._hosted(
            place, self.writer.constant(array, dtype, self.device(place))
        )

    def cast(
        self, reference: str, source: tf.DType, target: tf.DType, place: int
    ) -> str:
        """Writes a cast, unless the types are equal."""
        if source == target:
            return reference
        attributes = {"SrcT": source, "DstT": target, "Truncate": False}
        return self.op("Cast", [reference], attributes, place)[0]

    def reshape(
        self,
        reference: str,
        shape: str,
        dtype: tf.DType,
        place: int,
        of_shape: tf.DType = tf.int32,
    ) -> str:
        """Writes a reshape.

        Args:
            reference: The tensor.
            shape: Reference to the shape, a vector on the host.
            dtype: Type of the tensor.
            place: Place of the operation.
            of_shape: Type of the shape.
        """
        attributes = {"T": dtype, "Tshape": of_shape}
        return self.op("Reshape", [reference, shape], attributes, place)[0]

    def flat(self, reference: str, dtype: tf.DType, place: int) -> str:
        """Writes a reshape to a vector of all elements."""
        return self.reshape(
            reference, self.constant([-1], tf.int32, HOST), dtype, place
        )

    def concat(
        self, references: Sequence[str], axis: int, dtype: tf.DType, place: int
    ) -> str:
        """Writes a concatenation, unless there is only one tensor."""
        if len(references) == 1:
            return references[0]
        where = self.constant(axis, tf.int32, HOST)
        attributes = {"N": len(references), "T": dtype, "Tidx": tf.int32}
        return self.op("ConcatV2", [*references, where], attributes, place)[0]

    def strided_slice(
        self,
        reference: str,
        begin: str,
        end: str,
        strides: str,
        dtype: tf.DType,
        place: int,
        index: tf.DType = tf.int32,
        **masks: int,
    ) -> str:
        """Writes a `StridedSlice`; masks are 0 where they aren't given."""
        attributes = {"T": dtype, "Index": index}
        for kind in ("begin", "end", "ellipsis", "new_axis", "shrink_axis"):
            attributes[f"{kind}_mask"] = masks.get(f"{kind}_mask", 0)
        inputs = [reference, begin, end, strides]
        return self.op("StridedSlice", inputs, attributes, place)[0]

    def device(self, place: int) -> str:
        """Name of the device of a place."""
        if place == HOST:
            return self.replicas.host
        return self.replicas.devices[place]

    def place_of(self, reference: str) -> int:
        """The place of a value."""
        device = self.writer.device(reference)
        devices = self.replicas.devices
        if device is None or device not in devices:
            return HOST
        return devices.index(device)

    def captured(self, tensor: tf.Tensor) -> str:
        """A reference to an eager tensor, which becomes an argument."""
        if id(tensor) not in self.captures:
            reference = self.writer.add_input("captured", tensor.dtype)
            self.captures[id(tensor)] = (tensor, reference)
        return self.captures[id(tensor)][1]

    def keep(self, key: Hashable, make: Callable[[], _Kept]) -> _Kept:
        """The result of `make()`, cached under a key for this function."""
        if key not in self._kept:
            turn, self.writer.turn = self.writer.turn, None
            self._kept[key] = make()  # For all micro-batches.
            self.writer.turn = turn
        kept: _Kept = self._kept[key]
        return kept

    # Values ------------------------------------------------------------------

    def give(self, one: Value, references: References) -> None:
        """Records the references to a tensor in the kind of its definition."""
        self.hold(one, references)
        if one.kind != PER_WORKER:
            self._natural.setdefault(one.tensor, one)

    def hold(self, one: Value, references: References) -> None:
        """Records the references to a value, one per replica."""
        self._values[one] = references

    def references(self, one: Value) -> References:
        """References to a value, one per replica."""
        return self._values[one]

    def values(self) -> dict[str, Value]:
        """The value that each reference is to."""
        return {
            reference: one
            for one, references in self._values.items()
            if not isinstance(references, OnEachPlace)
            for reference in references
        }

    def natural(self, tensor: Tensor) -> Kind:
        """The kind of a tensor by its definition."""
        return self._natural[tensor].kind

    def given(self, tensor: Tensor) -> References:
        """References to a tensor in the kind of its definition."""
        return self._values[self._natural[tensor]]

    def parts(self, tensor: Tensor) -> Sequence[str]:
        """Each replica's shard or partial value of a tensor.

        Values of kind `PerReplica` are scaled by the replica's share of rows.
        """
        kind = self.natural(tensor)
        # Never `OnEachPlace`: only replicated values are.
        parts = cast(Sequence[str], self.given(tensor))
        if not isinstance(kind, PerReplica):
            return parts
        return [
            self.times_share(parts[place], kind.rows, tensor.dtype, place)
            for place in range(self.replicas.num)
        ]

    def times_share(
        self, reference: str, rows: Rows, dtype: tf.DType, place: int
    ) -> str:
        """Writes a value times a replica's share of rows; 0 without rows."""
        inputs = [reference, self.sizes.share(rows, dtype, place)]
        return self.op("MulNoNan", inputs, {"T": dtype}, place)[0]

    def is_written(self, tensor: Tensor) -> bool:
        """Whether a tensor has been written; one of known value may not be."""
        return tensor in self._natural

    def same(self, reference: str) -> list[str]:
        """One reference for all replicas."""
        return [reference] * self.replicas.num

    # Micro-batches -----------------------------------------------------------

    def take_turn(self, instruction: Instruction, place: int) -> None:
        """Nodes written from now on are a micro-batch's; see `turns.py`."""
        phase = self._phases.get(instruction)
        self.writer.turn = None if phase is None else (phase, place)
        if phase is not None:
            self.time = phase, place % self.replicas.micro_batches

    def of_devices(
        self, tensors: Sequence[Tensor], replicas: "Replicas"
    ) -> "Build":
        """This function with one place per device.

        Args:
            tensors: Tensors that each device has a part of.
            replicas: `replicas.Replicas` with one share per device.
        """
        view = copy.copy(self)
        view.replicas = replicas
        view._natural, view._values = {}, {}
        for tensor in tensors:
            parts = list(self.given(tensor))
            made = value(tensor, self.natural(tensor))
            view.give(made, parts[:: self.replicas.micro_batches])
        return view

    # Order -------------------------------------------------------------------

    def before_collective(self, place: int) -> list[str]:
        """Names of the nodes that a collective at a place has to wait for.

        Workers run collectives between hosts and between replicas in one order:
        started in different orders, they would deadlock. Those of micro-batches
        are ordered at the end; see `order_collectives`.
        """
        if self._phases:
            return []
        return _last(self.last_collective, place)

    def note_collective(self, place: int, name: str) -> None:
        """Records the name of a collective, or of a loop with some inside."""
        self.last_collective[place] = name
        self._collectives.append((self.time, place, name))

    def order_collectives(self) -> None:
        """Orders collectives by turns: they are written one by one for all."""
        last: dict[int, str | None] = {}
        for _, place, name in sorted(
            self._collectives, key=lambda collective: collective[0]
        ):
            node = self.writer.node(name)
            node.input.extend(f"^{other}" for other in _last(last, place))
            last[place] = name

    def note_done(self, node: Node, name: str | None = None) -> str:
        """Records a node, by default that written last, as a copy of `node`.

        Returns:
            Its name.
        """
        name = name or self.writer.last
        self._done.setdefault(node, []).append(name)
        return name

    def note_ran(self, instruction: Instruction, names: list[str]) -> None:
        """Records the names of the nodes that an instruction was written as."""
        self._ran[instruction] = names

    def ran(self, instructions: Sequence[Instruction], place: int) -> list[str]:
        """Names of the nodes that some instructions were written as.

        Args:
            instructions: The instructions.
            place: Of those on each replica, only the node of this one.
        """
        names: dict[str, None] = {}
        for instruction in instructions:
            found = self._ran.get(instruction, [])
            if len(found) == self.replicas.num:
                found = [found[place]]
            names.update(dict.fromkeys(found))
        return list(names)

    def controls(self, node: Node, place: int) -> list[str]:
        """Names of the control inputs of a node at a place."""
        names: list[str] = []
        for control in node.controls:
            done = self._done.get(control, ())
            if len(done) == self.replicas.num and place != HOST:
                names += done[place : place + self.span]
            else:
                names += done
        if self._batch is not None and (
            _has_effect(node) or self._sends_to_workers(node)
        ):
            names.append(self.started(place))
        return list(dict.fromkeys(names))

    def _sends_to_workers(self, node: Node) -> bool:
        """Whether workers may send each other what a node reads of variables.

        At the end of the data, without a batch, the step fails: a collective
        that one worker has started by then breaks those of later steps.
        """
        return self.replicas.total > self.replicas.num and any(
            tensor.dtype == tf.resource for tensor in node.inputs
        )

    def wait_for(self, reference: str, dtype: tf.DType) -> None:
        """Orders all side effects after an input.

        At the end of the data, without a batch, there are none.
        """
        self._batch = (reference, dtype)

    def require(self, condition: str, message: str) -> None:
        """Writes an assertion on the inputs, before all side effects.

        Args:
            condition: Reference to a boolean on the host.
            message: Text of the error.
        """
        text = self.constant(message, tf.string, HOST)
        attributes = {"T": [tf.string], "summarize": 1}
        self.op("Assert", [condition, text], attributes, HOST, "require")
        self._required.append(self.writer.last)

    def started(self, place: int) -> str:
        """Name of a node that fires once the batch has arrived."""
        reference, dtype = cast(tuple[str, tf.DType], self._batch)
        return self.keep(
            ("started", place),
            lambda: self.writer.barrier(
                reference,
                dtype,
                self.device(HOST),
                self.device(place),
                self._required,
            ),
        )

    def function(
        self, name: str, outputs: Sequence[tuple[str, tf.DType]]
    ) -> function_pb2.FunctionDef:
        """Forms the XLA clusters and returns the function.

        Args:
            name: Its name.
            outputs: List of `(reference, dtype)`.
        """
        if self._phases:
            self.order_collectives()
        take_turns(self, [r for r, _ in outputs])
        if self.assigns_last:
            assign_last(self, [r for r, _ in outputs])
        references = compile_clusters(self, [r for r, _ in outputs])
        types = [dtype for _, dtype in outputs]
        return self.writer.function(name, list(zip(references, types)))

    def effects(self) -> list[str]:
        """Names of nodes with side effects, and of assertions."""
        return self._required + [
            name
            for node in self.graph.effects
            for name in self._done.get(node, ())
        ]


def _last(last: Mapping[int, str | None], place: int) -> list[str]:
    """The last collectives, by place, that one at a place comes after."""
    places = list(last) if place == HOST else [place, HOST]
    return [name for name in map(last.get, places) if name]


def _has_effect(node: Node) -> bool:
    return bool(node.bodies) or (
        node.is_stateful and Trait.READ_ONLY not in record(node.type).traits
    )
