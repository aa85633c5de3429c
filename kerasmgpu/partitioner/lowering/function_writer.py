"""Writes a function of all replicas: its values, sizes and order."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, cast

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.ir.instructions import Instruction, Value
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.lowering.host_sizes import HostSizes
from kerasmgpu.partitioner.lowering.operation_writer import OperationWriter
from kerasmgpu.partitioner.rules.kinds import (
    PER_WORKER,
    MeshAxes,
    PerReplica,
    Rows,
)
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.places import HOST, OnEachPlace
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.partitioner.step.references import Reference

References = Sequence[Reference] | OnEachPlace
"""References to a value, one per replica of this process."""


class RowShares(Protocol):
    """Interface to the replicas' shares of rows; see `replicas.Replicas`."""

    def total_rows(self, build: "Function", rows: Rows) -> Reference:
        """Returns the global number of rows of an input passed in shares."""

    def passed_counts(
        self, build: "Function", rows: Rows
    ) -> list[Reference] | None:
        """Returns each local share's number of rows.

        Returns `None` if inputs with these rows are passed whole.
        """

    def shares(
        self, build: "Function", rows: Rows
    ) -> list[tuple[Reference, Reference]]:
        """Returns each local replica's first row and number of rows."""


class Clock(Protocol):
    """Interface to write nodes that measure time; see `compute_time.Clock`."""

    def ready(self, reference: Reference) -> None:
        """Writes nodes that record when the input of a collective is ready."""

    def done(self, reference: Reference) -> None:
        """Writes a node that records when a collective is complete."""

    def finish(self) -> list[str]:
        """Writes nodes that add up the times; returns names that must run."""


_HOSTS = "host"
"""Stands for the host's chain of collectives; see `Function.last_collective`."""


class Function(OperationWriter):
    """Writes a function of all replicas.

    A value is a sequence of references, one per replica of this process. If all
    references are the same, the value is on one device, and TensorFlow sends it
    to the others.

    Args:
        program: The `ir.lowered.Lowered` that is written.
        library: List that functions of loops and branches are added to.
        parent: The enclosing function, or `None`.

    Attributes:
        sizes: Its `host_sizes.HostSizes`.
        clock: The `Clock` of the function, or `None`.
        last_collective: Maps each device, and the host, to the name of its last
            collective, or of the last loop or branch with collectives inside.
        collectives: All collectives, as `(time, device, name)`.
        twins: Maps the name of each node of an operation that runs on copies
            (`Runs.ON_COPIES`) to the names of its nodes on all replicas.
        captures: `{id: (tensor, reference)}` of captured eager tensors.
        outputs: References to what it returns; set when all is written.
        places: In a view of some places of the function, those places; else
            `None`. See `building.Build`.
        line: The mesh axes of a line's view, and its number among all of the
            job; `(None, 0)` for the whole mesh.
        whole: The function that a line is a view of; else `None`.
        starts: Names of the nodes that fire once the batch has arrived.
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
        self.last_collective: dict[str, str] = {}
        self.collectives: list[tuple[tuple[int, int], str, str]] = []
        self.twins: dict[str, list[str]] = {}
        self.captures: dict[int, tuple[tf.Tensor, Reference]] = {}
        self._batch: Reference | None = None
        self._required: list[str] = []
        self.outputs: list[str] = []
        self.places: Sequence[int] | None = None
        self.line: tuple[MeshAxes | None, int] = (None, 0)
        self.whole: Function | None = None
        self.starts: list[str] = []

    def copy(
        self,
        node: Node,
        inputs: Sequence[Reference],
        place: int,
        **attributes: Any,
    ) -> list[Reference]:
        """Writes a copy of a node at a place; returns its outputs.

        `attributes` replace those of the node.
        """
        return self.writer.copy(
            node,
            inputs,
            self.device(place),
            "host/" if place == HOST else f"replica_{place}/",
            self.controls(node, place),
            attributes,
            self.is_on_host(place),
        )

    def captured(self, tensor: tf.Tensor) -> Reference:
        """Returns a reference to an eager tensor, which becomes an argument."""
        if id(tensor) not in self.captures:
            reference = self.writer.add_input("captured", tensor.dtype)
            self.captures[id(tensor)] = (tensor, reference)
        return self.captures[id(tensor)][1]

    # Values ------------------------------------------------------------------

    def give(self, one: Value, references: References) -> None:
        """Records references to a value as the definition of its tensor.

        The first kind that is recorded so is the tensor's `natural` one. One
        exception is `PER_WORKER`: a value on which workers agree follows.
        """
        self.hold(one, references)
        if PER_WORKER not in one.placement:
            self._natural.setdefault(one.tensor, one)

    def hold(self, one: Value, references: References) -> None:
        """Records references to a value, but not as its tensor's definition."""
        self._values[one] = references

    def references(self, one: Value) -> References:
        """Returns the references to a value, one per replica."""
        return self._values[one]

    def values(self) -> dict[str, Value]:
        """Returns `{reference: value}`, without values written on demand."""
        return {
            reference: one
            for one, references in self._values.items()
            if not isinstance(references, OnEachPlace)
            for reference in references
        }

    def natural(self, tensor: Tensor) -> Value:
        """Returns a tensor in the kinds in which it is defined; see `give`."""
        return self._natural[tensor]

    def given(self, tensor: Tensor) -> References:
        """Returns the references to a tensor in the kind of its definition."""
        return self._values[self._natural[tensor]]

    def parts(self, tensor: Tensor) -> Sequence[Reference]:
        """Returns each replica's shard or partial value of a tensor.

        Values of kind `PerReplica` are scaled by the replica's share of rows.
        """
        kind = self.natural(tensor).kind
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
        """Multiplies a value by a replica's fraction of the rows.

        The product is 0 if the replica has no rows, even if the value is NaN.
        """
        share = self.sizes.share(rows, reference.dtype, place)
        return self.op("MulNoNan", [reference, share], place)[0]

    def is_written(self, tensor: Tensor) -> bool:
        """Whether `give` has recorded a tensor, whose sizes can then be read."""
        return tensor in self._natural

    def same(self, reference: Reference) -> list[Reference]:
        """Returns a reference repeated for each replica."""
        return [reference] * self.mesh.num

    # Micro-batches -----------------------------------------------------------

    def take_turn(self, instruction: Instruction, place: int) -> None:
        """Assigns nodes written from now on to a turn, or to none.

        To none if the instruction runs once for all micro-batches; see
        `turns.py`.
        """
        place = self._place(place)
        phase = self.program.phases.get(instruction)
        if phase is None:
            self.writer.move(turn=None)
            return
        time = phase, place % (self.whole or self).mesh.micro_batches
        self.writer.move(turn=(phase, place), time=time)

    # Order -------------------------------------------------------------------

    def before_collective(self, place: int) -> list[str]:
        """Returns names of the nodes that a collective at a place waits for.

        Workers run collectives between hosts and between replicas in one order:
        started in different orders, they would deadlock. With micro-batches
        there are no names: `turns.order_collectives` orders collectives at the
        end.
        """
        if self.program.phases:
            return []
        return last_collectives(self.last_collective, self._chain(place))

    def note_collective(self, place: int, name: str) -> None:
        """Records the name of a collective, or of a loop with some inside."""
        chain = self._chain(place)
        self.last_collective[chain] = name
        self.collectives.append((self.writer.cursor.time, chain, name))

    def _chain(self, place: int) -> str:
        """Returns what stands for the chain of collectives of a place.

        Views count places otherwise: a device's name is the same in all. A
        CPU's name can be that of a replica and that of the host.
        """
        return _HOSTS if place == HOST else self.device(place)

    def _place(self, place: int) -> int:
        """Returns the place, among all, of a place of this view."""
        if self.places is None or place == HOST:
            return place
        return self.places[place]

    def note_done(self, node: Node, name: str | None = None) -> str:
        """Records a node, by default the last one written, as a copy of `node`.

        Returns its name.
        """
        name = name or self.writer.last
        self._done.setdefault(node, []).append(name)
        return name

    def copies_of(self, names: Collection[str]) -> list[list[str]]:
        """Groups nodes by the operation that they are copies of."""
        left = dict.fromkeys(names)
        groups = []
        for done in self._done.values():
            copies = [name for name in dict.fromkeys(done) if name in left]
            if copies:
                groups.append(copies)
            for name in copies:
                del left[name]
        return groups + [[name] for name in left]

    def note_ran(self, instruction: Instruction, names: list[str]) -> None:
        """Records the names of the nodes that an instruction was written as."""
        self._ran[instruction] = names

    def take_names(
        self, instruction: Instruction, node: Node | None
    ) -> tuple[list[str], list[str]]:
        """Forgets and returns names that are noted: of an instruction, of its node."""
        done = [] if node is None else self._done.pop(node, [])
        return self._ran.pop(instruction, []), done

    def ran(self, instructions: Sequence[Instruction], place: int) -> list[str]:
        """Returns names of the nodes that some instructions were written as.

        Args:
            place: The replica whose node is taken if each replica has one.
        """
        names: dict[str, None] = {}
        for instruction in instructions:
            found = self._ran.get(instruction, [])
            if len(found) == self.program.mesh.num:
                found = [found[self._place(place)]]
            names.update(dict.fromkeys(found))
        return list(names)

    def controls(self, node: Node, place: int) -> list[str]:
        """Returns the names of the control inputs of a node at a place.

        If the node waits for the batch, `started` is among them. A value that
        is the same on all replicas waits for the checks of all: what is
        computed from it on one replica, others assign.
        """
        names: list[str] = []
        cursor = self.writer.cursor
        for control in node.controls:
            done = self._done.get(control, ())
            of_all = (
                place == HOST
                or cursor.span == self.mesh.num
                or cursor.is_same
                and Trait.CHECKS in control.traits
            )
            if len(done) == self.program.mesh.num and not of_all:
                first = self._place(place)
                names += done[first : first + cursor.span]
            else:
                names += done
        if self._batch is not None and node in self.program.after_batch:
            at = HOST if cursor.on_host else place
            names.append(self.started(at))
        return list(dict.fromkeys(names))

    def wait_for(self, reference: Reference) -> None:
        """Makes all side effects wait for an input of the batch.

        So a step has no side effects at the end of the data, when no batch
        comes. Each call replaces the input of the one before.
        """
        self._batch = reference

    def require(self, condition: Reference, message: str) -> None:
        """Writes an assertion on the inputs, before all side effects.

        Args:
            condition: Reference to a boolean on the host.
        """
        inputs = [condition, self.constant(message, tf.string)]
        self.op("Assert", inputs, HOST, "require", summarize=1)
        self._required.append(self.writer.last)

    def started(self, place: int) -> str:
        """Returns the name of a node that fires once the batch has arrived.

        It also waits for the assertions that `require` has written by then.
        """

        def write() -> str:
            name = self.writer.barrier(
                cast(Reference, self._batch),
                self.device(HOST),
                self.device(place),
                self._required,
            )
            self.starts.append(name)
            return name

        return self.keep(("started", place), write)

    def effects(self) -> list[str]:
        """Returns names of nodes with side effects, and of assertions."""
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

    def equal_count(self, rows: Rows) -> int | None:
        """Returns each share's number of rows, if it is known and equal."""
        root = self
        while root.parent is not None:
            root = root.parent
        if (
            not isinstance(rows.size, int)
            or rows.size % self.mesh.size(rows.over)
            or rows.of is not None
            or rows.are_of_variable
            or root.passed_counts(rows) is not None
        ):
            return None
        return rows.size // self.mesh.size(rows.over)

    def shares(self, rows: Rows) -> list[tuple[Reference, Reference]]:
        """See `RowShares.shares`."""
        return self._row_shares.shares(self, rows)


def last_collectives(last: Mapping[str, str], chain: str) -> list[str]:
    """Returns names of the earlier collectives that one of a chain must follow.

    On the host it follows those of all chains; on a replica, those of the
    replica and the host. So all workers start host and replica collectives in
    one order.
    """
    chains = list(last) if chain == _HOSTS else [chain, _HOSTS]
    return [last[each] for each in chains if each in last]
