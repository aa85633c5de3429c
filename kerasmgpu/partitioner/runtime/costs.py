"""Counts what a device computes, sends and copies in a step, and for what."""

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import tensorflow as tf

from kerasmgpu.partitioner.ir.instructions import (
    AllGather,
    AllReduce,
    Broadcast,
    Communication,
    GatherCounts,
    ReduceScatter,
    Sent,
    ToDevice,
    ToHost,
)
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.passes.order_gathers import bytes_alive
from kerasmgpu.partitioner.rules.kinds import (
    MeshAxes,
    Sharded,
    is_of_variable,
)
from kerasmgpu.partitioner.rules.table import Plan, Plans
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.partitioner.step.sizes import are_integers

_BACKWARD = ("gradient_tape", "gradients")
"""First scopes of the operations of a backward pass."""


class Sending(NamedTuple):
    """What replicas send for one tensor in a step.

    Attributes:
        by: The `Communication` that sends it.
        kind: String, such as `"all_reduce"`.
        tensor: The `Tensor` of the one-device step.
        axes: The `MeshAxes` along which replicas send.
        combined: Integer, bytes of the whole tensor; of its part, where it is
            divided along other mesh axes.
        sent: Integer, bytes that each replica sends for that, in a ring.
    """

    by: Communication
    kind: str
    tensor: Tensor
    axes: MeshAxes
    combined: int
    sent: int


class Costs:
    """What a device computes, sends and copies in a step.

    Communication inside a loop counts once. Sizes that only the step knows count
    as 1.

    Args:
        program: `Lowered` of the step.
        rows: Integer, rows of a batch over all replicas.
        communication: What it sends. Default: what its instructions send.
    """

    def __init__(
        self,
        program: Lowered,
        rows: int = 0,
        communication: Iterable[Communication] | None = None,
    ) -> None:
        self._program, self._mesh, self._rows = program, program.mesh, rows
        if communication is None:
            communication = program.communication()
        self._communication = list(communication)

    # What is computed ----------------------------------------------------

    def parts(self, nodes: Container[Node] | None = None) -> dict[Node, int]:
        """Returns into how many parts devices divide operations.

        Args:
            nodes: The operations. Default: all.
        """
        along = self._mesh.planning_axes
        numbers = list(map(self._mesh.num_devices, along))
        return {
            node: parts_of(plans, numbers)
            for node, plans in planned(
                self._program.graph, self._program.plans, nodes
            )
        }

    # What is sent --------------------------------------------------------

    def sendings(self) -> Iterator[Sending]:
        """Yields a `Sending` for each tensor that replicas send in a step.

        What is sent per micro-batch, as sharded weights, counts that often.
        """
        for one in self._communication:
            in_turns = getattr(one, "in_turns", False)
            times = self._mesh.micro_batches if in_turns else 1
            kind, axes = one.name.partition(".")[0], one.along(self._mesh)
            num_devices = self._mesh.num_devices(axes)
            for together in one.sizes(self._mesh):
                for tensor, size in _each(together, self._rows):
                    combined = size * times
                    sent = in_a_ring(kind, combined, num_devices)
                    yield Sending(one, kind, tensor, axes, combined, sent)

    def sent_along(self) -> Counter[int]:
        """Returns the bytes that a device sends along each mesh axis, by number."""
        found = Counter[int]()
        for one in self.sendings():
            if one.sent:  # A mesh of one device has no axes here.
                found[one.by.axis] += one.sent
        return found

    def rings_along(self) -> Counter[int]:
        """Returns the passes around the ring of each mesh axis, by number.

        An all-reduce has two, other collectives one.
        """
        found = Counter[int]()
        for one in self._communication:
            found[one.axis] += _passes(one.name.partition(".")[0])
        return found

    def by_purpose(self) -> list[dict[str, Any]]:
        """Returns what the replicas send each other, and what for.

        Returns:
            List of dictionaries: `"kind"` (`"all_reduce"`), `"purpose"`
            (`"gradients"`), `"axes"`, the `MeshAxes`, and `"bytes"` of
            the whole tensors, most bytes first.
        """
        found: Counter[tuple[str, str, MeshAxes]] = Counter()
        for one in self.sendings():
            divides_rows = self._mesh.divides_rows and one.by.axis == 0
            purpose = _purpose(one.by, one.tensor, divides_rows)
            found[one.kind, purpose, one.axes] += one.combined
        return [
            {"kind": kind, "purpose": purpose, "axes": axes, "bytes": size}
            for (kind, purpose, axes), size in found.most_common()
        ]

    def names(self) -> list[str]:
        """Lists what the replicas send, such as `"all_reduce of dense"`."""
        found: dict[str, None] = {}
        for one in self._communication:
            layers = dict.fromkeys(
                part_of(tensor.node.name)
                for tensor, *_ in one.sizes(self._mesh)
            )
            found[f"{one.name} of {', '.join(layers)}"] = None
        return list(found)

    def summed(self) -> int:
        """Returns the bytes that are summed over the replicas."""
        return sum(
            one.combined
            for one in self.sendings()
            if isinstance(one.by, (AllReduce, ReduceScatter))
        )

    def gathered_per_row(self) -> int:
        """Returns the bytes of activations that are gathered, per row."""
        return sum(
            _bytes(sent, 1)
            for one in self._communication
            if isinstance(one, AllGather)
            for sent in one.sizes(self._mesh)
        )

    # What is held --------------------------------------------------------

    def gathered(self) -> int:
        """Returns the peak bytes of gathered weights on each replica."""
        return bytes_alive(self._program)

    def linked(self) -> tuple[int, int]:
        """Returns the bytes that a replica copies to the host, and back.

        Returns:
            `(to_host, to_device)`, for the longest parts; scalars aren't counted.
        """
        found = {ToHost: 0, ToDevice: 0}
        for one in self._program.all_instructions():
            if isinstance(one, (ToHost, ToDevice)):
                (copied,) = one.inputs
                parts = math.prod(
                    self._mesh.num_parts(kind.rows)
                    for kind in copied.placement
                    if isinstance(kind, Sharded)
                )
                each = Fraction(copied.tensor.dtype.size, parts)
                sent = copied.tensor, copied.tensor.num_elements, each
                found[type(one)] += _bytes(sent, 0)
        return found[ToHost], found[ToDevice]

    def kept_by_micro_batches(self) -> dict[str, int]:
        """Returns the bytes kept across phases of micro-batches, by layer.

        An operation that looks at all rows, as a batch normalisation does, needs
        results of all micro-batches before any continues; values that they use
        later are kept for all rows.

        Returns:
            `{layer: bytes per row}` of the layers whose values are kept; empty if
            each micro-batch is done before the next one begins.
        """
        phases = self._program.phases
        made = {
            one: phase
            for instruction, phase in phases.items()
            for one in instruction.outputs
        }
        kept = {
            one
            for instruction, phase in phases.items()
            for one in instruction.inputs
            if made.get(one, phase) < phase
        }
        found: dict[str, int] = {}
        for one in made:
            kind = one.placement[0]
            if one in kept and isinstance(kind, Sharded):
                tensor, rows = one.tensor, kind.rows.size
                per_row = sizes.divide(tensor.num_elements, rows)
                sent = tensor, per_row, Fraction(tensor.dtype.size)
                name = part_of(tensor.node.name)
                found[name] = found.get(name, 0) + _bytes(sent, 1)
        return found


def planned(
    graph: Graph, plans: Sequence[Plans], nodes: Container[Node] | None = None
) -> Iterator[tuple[Node, list[Plan]]]:
    """Yields nodes of a graph and of its bodies.

    With each come its plans on the axes of the mesh.

    Args:
        nodes: The nodes. Default: all.
    """
    for node in graph.nodes:
        is_wanted = nodes is None or node in nodes
        if not (is_wanted or node.bodies) or node not in plans[0].nodes:
            continue  # Inputs have no plans.
        own = [of_axis.nodes[node] for of_axis in plans]
        if is_wanted:
            yield node, own
        if node.bodies:
            of_bodies = zip(*(plan.details for plan in own))
            for body, inner in zip(node.bodies, of_bodies):
                yield from planned(body, inner, nodes)


def parts_of(plans: Sequence[Plan], numbers: Sequence[int]) -> int:
    """Returns into how many parts an operation is divided.

    Args:
        plans: Its plans on the axes of the mesh.
        numbers: Sequence of integers, replicas along these axes.
    """
    return math.prod(
        number for plan, number in zip(plans, numbers) if plan.is_local
    )


def in_a_ring(kind: str, num_bytes: int, num_replicas: int) -> int:
    """Returns the bytes that each replica sends for a collective.

    An all-reduce is a reduce-scatter and an all-gather, in each of which a
    replica passes on all parts but one (Patarasuk and Yuan, "Bandwidth optimal
    all-reduce algorithms for clusters of workstations", 2009). What
    goes from one replica to another directly is counted as it is sent.

    Args:
        num_bytes: Integer, bytes of the whole tensor.

    Example:

    >>> in_a_ring("all_reduce", 400, 4), in_a_ring("all_gather", 400, 4)
    (600, 300)
    """
    if kind in ("all_to_all", "send_rows"):
        return num_bytes
    return -(-_passes(kind) * num_bytes * (num_replicas - 1) // num_replicas)


def _passes(kind: str) -> int:
    """Returns how often each part of a tensor goes around the ring."""
    return 2 if kind == "all_reduce" else 1


def _purpose(one: Communication, tensor: Tensor, divides_rows: bool) -> str:
    """Returns what a collective is for.

    Args:
        divides_rows: Whether its mesh axis divides rows.
    """
    node = tensor.node
    while Trait.PASSES in node.traits:  # A copy that waits for `NotFinite`.
        node = node.inputs[0].node
    if isinstance(one, GatherCounts):
        return "numbers of rows"
    if isinstance(one, Broadcast):
        return "agreement of the workers"
    if isinstance(one, AllGather) and is_of_variable(one.kind_before):
        return "sharded variables"
    # An optimizer's product with the learning rate is summed in its place.
    behind = node.inputs if tensor.shape != () else ()
    nodes = [node, *(one.node for one in behind)]
    is_backward = any(node.name.startswith(_BACKWARD) for node in nodes)
    if is_backward and divides_rows:
        return "gradients"
    if is_backward:
        return "gradients of activations"
    if part_of(node.name) == "the step itself":
        return "loss and metrics"
    if divides_rows and tensor.shape is not None and are_integers(tensor.shape):
        return "statistics of batches"
    return "activations"


def part_of(name: str) -> str:
    """Returns the layer in a node's name; `"the step itself"` if in none."""
    scopes = [
        scope
        for scope in name.split("/")[:-1]
        if scope not in ("gradient_tape", "while", "gradients", "cond")
        # An operation's own name, as in "adam/Sub_2/ReadVariableOp".
        and not hasattr(tf.raw_ops, re.sub(r"_\d+$", "", scope))
    ]
    if not scopes:
        return "the step itself"
    return scopes[min(1, len(scopes) - 1)]


def _each(sent: Sent, rows: int) -> list[tuple[Tensor, int]]:
    """Returns the tensors that are sent, with the bytes of each.

    They are several where small sums of one shape are packed into one tensor.

    Args:
        sent: See `ir.instructions.Communication.sizes`.
        rows: Number of rows of a batch over all replicas.
    """
    whole, num_bytes = sent[0], _bytes(sent, rows)
    is_packed = whole.node.type == "Pack"
    tensors = whole.node.inputs if is_packed else [whole]
    return [(tensor, num_bytes // len(tensors)) for tensor in tensors]


def _bytes(sent: Sent, rows: int) -> int:
    """Returns the bytes that are sent, for a number of rows.

    Other symbols in the number of elements count as 1.

    Args:
        sent: See `ir.instructions.Communication.sizes`.

    Returns:
        Integer; 0 if the number of elements is unknown.
    """
    _, elements, bytes_each = sent
    if elements is None:
        return 0
    if isinstance(elements, sizes.Size):
        symbols = dict.fromkeys(elements.symbols, 0)
        known = {s: rows if s.joined.is_rows else 1 for s in symbols}
        elements = sizes.evaluate(elements, known)
    return math.ceil(elements * bytes_each)
