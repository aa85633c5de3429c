"""A function of all replicas while it is written: values, sizes and order."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.ir.instructions import Instruction, Value
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.lowering.host_sizes import HostSizes
from kerasmgpu.partitioner.lowering.operation_writer import OperationWriter
from kerasmgpu.partitioner.rules.kinds import PER_WORKER, Kind, PerReplica, Rows
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.places import HOST, OnEachPlace
from kerasmgpu.partitioner.step.references import Reference

References = Sequence[Reference] | OnEachPlace
"""References to a value, one per replica of this process."""


class RowShares(Protocol):
    """Shares of rows, as the communicator of the replicas deals them."""

    def total_rows(self, build: "Function", rows: Rows) -> Reference:
        """Number of rows, on all replicas, of an input passed in shares."""

    def passed_counts(
        self, build: "Function", rows: Rows
    ) -> list[Reference] | None:
        """Rows of each local share of an input; `None` if it is passed whole."""

    def shares(
        self, build: "Function", rows: Rows
    ) -> list[tuple[Reference, Reference]]:
        """First row and number of rows of each local replica, on the host."""


class Clock(Protocol):
    """Operations that measure a function; see `compute_time.Clock`."""

    def ready(self, reference: Reference) -> None:
        """Records when the input of a collective is ready."""

    def done(self, reference: Reference) -> None:
        """Records when a collective is complete."""

    def finish(self) -> list[str]:
        """Adds up the times; returns names of nodes that must run."""


class Function(OperationWriter):
    """A function while it is written.

    A value is a sequence of references, one per replica of this process. If all
    are the same, the value is on one device, and TensorFlow sends it to the
    others.

    Args:
        program: The `ir.lowered.Lowered` that is written.
        library: List that functions of loops and branches are added to.
        row_shares: `RowShares` of its replicas.
        parent: The enclosing function, or `None`.

    Attributes:
        sizes: Its `host_sizes.HostSizes`.
        clock: The `Clock` of the function, or `None`.
        last_collective: For each place the name of the last collective.
        collectives: All of them: when each runs (see `time`), place, name.
        time: When what is written now runs: a phase, a micro-batch's turn in
            it, or -1 before all turns.
        twins: Maps nodes that replicas run on their own copies of one value
            (`Runs.ON_COPIES`) to the nodes of all replicas.
        captures: `{id: (tensor, reference)}` of captured eager tensors.
        span: How many micro-batches, from its place on, a node is written for.
        outputs: References to what it returns, once all is written.
    """

    def __init__(
        self,
        program: Lowered,
        library: list[function_pb2.FunctionDef],
        row_shares: RowShares,
        parent: "Function | None" = None,
    ) -> None:
        super().__init__(program.mesh)
        self._row_shares = row_shares
        self.program = program
        self.graph = program.graph
        self.library = library
        self.parent = parent
        self.sizes = HostSizes(self, self)
        self._natural: dict[Tensor, Value] = {}
        self._values: dict[Value, References] = {}
        self._done: dict[Node, list[str]] = {}
        self._ran: dict[Instruction, list[str]] = {}
        self.clock: Clock | None = None
        self.last_collective: dict[int, str | None] = {}
        self.time: tuple[int, int] = (0, -1)
        self.collectives: list[tuple[tuple[int, int], int, str]] = []
        self.twins: dict[str, list[str]] = {}
        self.captures: dict[int, tuple[tf.Tensor, Reference]] = {}
        self._batch: Reference | None = None
        self._required: list[str] = []
        self.span = 1
        self.outputs: list[str] = []

    def copy(
        self,
        node: Node,
        inputs: Sequence[Reference],
        place: int,
        **attributes: Any,
    ) -> list[Reference]:
        """Writes a node of the graph with new inputs, or attributes."""
        return self.writer.copy(
            node,
            inputs,
            self.device(place),
            "host/" if place == HOST else f"replica_{place}/",
            self.controls(node, place),
            attributes,
            place == HOST,
        )

    def captured(self, tensor: tf.Tensor) -> Reference:
        """A reference to an eager tensor, which becomes an argument."""
        if id(tensor) not in self.captures:
            reference = self.writer.add_input("captured", tensor.dtype)
            self.captures[id(tensor)] = (tensor, reference)
        return self.captures[id(tensor)][1]

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

    def parts(self, tensor: Tensor) -> Sequence[Reference]:
        """Each replica's shard or partial value of a tensor.

        Values of kind `PerReplica` are scaled by the replica's share of rows.
        """
        kind = self.natural(tensor)
        # Never `OnEachPlace`: only replicated values are.
        parts = cast(Sequence[Reference], self.given(tensor))
        if not isinstance(kind, PerReplica):
            return parts
        return [
            self.times_share(parts[place], kind.rows, place)
            for place in range(self.mesh.num)
        ]

    def times_share(
        self, reference: Reference, rows: Rows, place: int
    ) -> Reference:
        """Writes a value times a replica's share of rows; 0 without rows."""
        share = self.sizes.share(rows, reference.dtype, place)
        return self.op("MulNoNan", [reference, share], place)[0]

    def is_written(self, tensor: Tensor) -> bool:
        """Whether a tensor has been written; one of known value may not be."""
        return tensor in self._natural

    def same(self, reference: Reference) -> list[Reference]:
        """One reference for all replicas."""
        return [reference] * self.mesh.num

    # Micro-batches -----------------------------------------------------------

    def take_turn(self, instruction: Instruction, place: int) -> None:
        """Nodes written from now on are a micro-batch's; see `turns.py`."""
        phase = self.program.phases.get(instruction)
        self.writer.turn = None if phase is None else (phase, place)
        if phase is not None:
            self.time = phase, place % self.mesh.micro_batches

    # Order -------------------------------------------------------------------

    def before_collective(self, place: int) -> list[str]:
        """Names of the nodes that a collective at a place has to wait for.

        Workers run collectives between hosts and between replicas in one order:
        started in different orders, they would deadlock. Those of micro-batches
        are ordered at the end; see `turns.order_collectives`.
        """
        if self.program.phases:
            return []
        return last_collectives(self.last_collective, place)

    def note_collective(self, place: int, name: str) -> None:
        """Records the name of a collective, or of a loop with some inside."""
        self.last_collective[place] = name
        self.collectives.append((self.time, place, name))

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
            if len(found) == self.mesh.num:
                found = [found[place]]
            names.update(dict.fromkeys(found))
        return list(names)

    def controls(self, node: Node, place: int) -> list[str]:
        """Names of the control inputs of a node at a place."""
        names: list[str] = []
        for control in node.controls:
            done = self._done.get(control, ())
            if len(done) == self.mesh.num and place != HOST:
                names += done[place : place + self.span]
            else:
                names += done
        if self._batch is not None and node in self.program.after_batch:
            names.append(self.started(place))
        return list(dict.fromkeys(names))

    def wait_for(self, reference: Reference) -> None:
        """Orders all side effects after an input.

        At the end of the data, without a batch, there are none.
        """
        self._batch = reference

    def require(self, condition: Reference, message: str) -> None:
        """Writes an assertion on the inputs, before all side effects.

        Args:
            condition: Reference to a boolean on the host.
            message: Text of the error.
        """
        inputs = [condition, self.constant(message, tf.string)]
        self.op("Assert", inputs, HOST, "require", summarize=1)
        self._required.append(self.writer.last)

    def started(self, place: int) -> str:
        """Name of a node that fires once the batch has arrived."""
        return self.keep(
            ("started", place),
            lambda: self.writer.barrier(
                cast(Reference, self._batch),
                self.device(HOST),
                self.device(place),
                self._required,
            ),
        )

    def effects(self) -> list[str]:
        """Names of nodes with side effects, and of assertions."""
        return self._required + [
            name
            for node in self.graph.effects
            for name in self._done.get(node, ())
        ]

    # Rows --------------------------------------------------------------------

    def total_rows(self, rows: Rows) -> Reference:
        """See `RowShares.total_rows`."""
        return self._row_shares.total_rows(self, rows)

    def passed_counts(self, rows: Rows) -> list[Reference] | None:
        """See `RowShares.passed_counts`."""
        return self._row_shares.passed_counts(self, rows)

    def shares(self, rows: Rows) -> list[tuple[Reference, Reference]]:
        """See `RowShares.shares`."""
        return self._row_shares.shares(self, rows)


def last_collectives(last: Mapping[int, str | None], place: int) -> list[str]:
    """The last collectives, by place, that one at a place comes after."""
    places = list(last) if place == HOST else [place, HOST]
    return [name for name in map(last.get, places) if name]
