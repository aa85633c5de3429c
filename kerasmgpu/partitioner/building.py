"""Writes the function in which replicas run a planned graph together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.compilation import compile_stretches
from kerasmgpu.partitioner.graph import MUST_COMPILE, Tensor
from kerasmgpu.partitioner.host_sizes import HostSizes
from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.kinds import PER_WORKER, Kind, Own, Rows
from kerasmgpu.partitioner.places import HOST, OnEachPlace
from kerasmgpu.partitioner.records import Trait, record
from kerasmgpu.partitioner.writing import Writer, node_name

if TYPE_CHECKING:
    from kerasmgpu.partitioner.own_time import Clock

References = Sequence[str] | OnEachPlace
"""References to a value, one per replica of this process."""


class Build:
    """One function, as it is written.

    What a tensor is on the replicas is a sequence of references, one per
    replica of this process. Where all are the same, the value is there once
    and TensorFlow sends it to who needs it.

    Args:
        program: The `ir.lowered.Lowered` that is written.
        library: List that functions of loops and branches are added to.
        parent: The `Build` that the function is a body in, or `None`.
        is_compiled: Whether XLA will compile what each replica does.

    Attributes:
        writer: The function's `writing.Writer`.
        sizes: Its `host_sizes.HostSizes`.
        clock: The `own_time.Clock` of the function, or `None`.
        last_collective: For each place the name of the last collective.
        twins: `{name: names}` of what every replica does with its own copies of
            the same values.
        captures: `{id: (tensor, reference)}` of tensors that the function gets
            besides those of the graph.
    """

    def __init__(
        self,
        program: Lowered,
        library: list[function_pb2.FunctionDef],
        parent: "Build | None" = None,
        is_compiled: bool = False,
    ) -> None:
        self.is_compiled = is_compiled
        self.graph = program.graph
        self.replicas = program.replicas
        self.library = library
        self.parent = parent
        self.writer = Writer()
        self.sizes = HostSizes(self)
        self._natural: dict[Tensor, Value] = {}
        self._values: dict[Value, References] = {}
        self._done = {}
        self.clock: Clock | None = None
        self.last_collective = {}
        self.twins = {}
        self.captures = {}
        self._kept = {}
        self._batch = None
        self._required = []

    def compiles(self, node):
        """Whether XLA will compile what a replica does for a node."""
        return self.is_compiled or MUST_COMPILE in node.definition.attr

    # What rules use to write operations --------------------------------------

    def op(self, type, inputs, attributes, place, name=None, controls=()):
        """Writes an operation; see `writing.Writer.op`."""
        return self._hosted(
            place,
            self.writer.op(
                type, inputs, attributes, self.device(place), name, controls
            ),
        )

    def _hosted(self, place, made):
        # What was written before is not written again: `last` may be another.
        if place == HOST:
            references = [made] if isinstance(made, str) else made
            names = {node_name(reference) for reference in references}
            self.writer.on_host |= names or {self.writer.last}
        return made

    def copy(self, node, inputs, place, **attributes):
        """Writes a node of the graph with other inputs, or attributes."""
        prefix = "host/" if place == HOST else f"replica_{place}/"
        controls = self.controls(node, place)
        return self._hosted(
            place,
            self.writer.copy(
                node, inputs, self.device(place), prefix, controls, attributes
            ),
        )

    def constant(self, array, dtype, place):
        """Writes a constant."""
        return self._hosted(
            place, self.writer.constant(array, dtype, self.device(place))
        )

    def cast(self, reference, source, target, place):
        """Writes a cast from one type to another, if that is another."""
        if source == target:
            return reference
        attributes = {"SrcT": source, "DstT": target, "Truncate": False}
        return self.op("Cast", [reference], attributes, place)[0]

    def reshape(self, reference, shape, dtype, place, of_shape=tf.int32):
        """Writes a reshape to a vector of sizes on the host."""
        attributes = {"T": dtype, "Tshape": of_shape}
        return self.op("Reshape", [reference, shape], attributes, place)[0]

    def flat(self, reference, dtype, place):
        """Writes a reshape to a vector of all elements."""
        return self.reshape(
            reference, self.constant([-1], tf.int32, HOST), dtype, place
        )

    def concat(self, references, axis, dtype, place):
        """Writes a concatenation."""
        if len(references) == 1:
            return references[0]
        where = self.constant(axis, tf.int32, HOST)
        attributes = {"N": len(references), "T": dtype, "Tidx": tf.int32}
        return self.op("ConcatV2", [*references, where], attributes, place)[0]

    def strided_slice(
        self,
        reference,
        begin,
        end,
        strides,
        dtype,
        place,
        index=tf.int32,
        **masks,
    ):
        """Writes a `StridedSlice`; masks are 0 where they aren't given."""
        attributes = {"T": dtype, "Index": index}
        for kind in ("begin", "end", "ellipsis", "new_axis", "shrink_axis"):
            attributes[f"{kind}_mask"] = masks.get(f"{kind}_mask", 0)
        inputs = [reference, begin, end, strides]
        return self.op("StridedSlice", inputs, attributes, place)[0]

    def device(self, place):
        """Name of the device of a place."""
        if place == HOST:
            return self.replicas.host
        return self.replicas.devices[place]

    def place_of(self, reference):
        """The place where a value is."""
        device = self.writer.device(reference)
        devices = self.replicas.devices
        return devices.index(device) if device in devices else HOST

    def captured(self, tensor):
        """A reference to an eager tensor, which the function gets passed."""
        if id(tensor) not in self.captures:
            reference = self.writer.add_input("captured", tensor.dtype)
            self.captures[id(tensor)] = (tensor, reference)
        return self.captures[id(tensor)][1]

    def keep(self, key, make):
        """What `make()` returned when it was first asked for."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    # Values ------------------------------------------------------------------

    def give(self, one: Value, references: References) -> None:
        """Notes the references to a tensor as it is first made, or given."""
        self.hold(one, references)
        if one.kind != PER_WORKER:
            self._natural.setdefault(one.tensor, one)

    def hold(self, one: Value, references: References) -> None:
        """Notes the references to a value, one per replica."""
        self._values[one] = references

    def references(self, one: Value) -> References:
        """References to a value, one per replica."""
        return self._values[one]

    def natural(self, tensor: Tensor) -> Kind:
        """The kind in which a tensor was first made."""
        return self._natural[tensor].kind

    def given(self, tensor: Tensor) -> References:
        """References to a tensor as it was first made."""
        return self._values[self._natural[tensor]]

    def parts(self, tensor: Tensor) -> References:
        """References whose sum, or the like, over the replicas is a tensor."""
        kind, parts = self.natural(tensor), self.given(tensor)
        if not isinstance(kind, Own):
            return parts
        return [
            self.times_share(parts[place], kind.rows, tensor.dtype, place)
            for place in range(self.replicas.num)
        ]

    def times_share(
        self, reference: str, rows: Rows, dtype: tf.DType, place: int
    ) -> str:
        """Writes a value times a replica's share of rows: 0 without rows."""
        inputs = [reference, self.sizes.share(rows, dtype, place)]
        return self.op("MulNoNan", inputs, {"T": dtype}, place)[0]

    def is_written(self, tensor: Tensor) -> bool:
        """Whether a tensor was written, rather than that its value is known."""
        return tensor in self._natural

    def same(self, reference: str) -> References:
        """One value for all replicas."""
        return [reference] * self.replicas.num

    # Order -------------------------------------------------------------------

    def note_done(self, node):
        """Notes that what was written last is a node; returns its name."""
        self._done.setdefault(node, []).append(self.writer.last)
        return self.writer.last

    def controls(self, node, place):
        """Names of what must have run before a node at a place."""
        names = []
        for control in node.controls:
            done = self._done.get(control, ())
            if len(done) == self.replicas.num and place != HOST:
                names.append(done[place])
            else:
                names += done
        if self._batch is not None and _has_effect(node):
            names.append(self.started(place))
        return list(dict.fromkeys(names))

    def wait_for(self, reference, dtype):
        """Lets nothing happen before an input is there.

        What would happen without a batch, at the end of the data, must leave
        no trace.
        """
        self._batch = (reference, dtype)

    def require(self, condition, message):
        """Lets nothing happen unless a condition on the inputs holds.

        Args:
            condition: Reference to a boolean on the host.
            message: What the error says that is raised otherwise.
        """
        text = self.constant(message, tf.string, HOST)
        attributes = {"T": [tf.string], "summarize": 1}
        self.op("Assert", [condition, text], attributes, HOST, "require")
        self._required.append(self.writer.last)

    def started(self, place):
        """Name of a node that has run when there is a batch."""
        reference, dtype = self._batch
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

    def function(self, name, outputs):
        """The function that was written, with what XLA compiles in it.

        Args:
            name: Its name.
            outputs: List of `(reference, dtype)`.

        Returns:
            A `FunctionDef`.
        """
        references = compile_stretches(self, [r for r, _ in outputs])
        types = [dtype for _, dtype in outputs]
        return self.writer.function(name, list(zip(references, types)))

    def effects(self):
        """Names of nodes that must run."""
        return self._required + [
            name
            for node in self.graph.effects
            for name in self._done.get(node, ())
        ]


def _has_effect(node):
    return bool(node.bodies) or (
        node.is_stateful and Trait.READ_ONLY not in record(node.type).traits
    )
