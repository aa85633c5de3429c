"""Says what replicas send in a step: for which tensor, along which axes."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kerasmgpu.partitioner.ir.instructions import (
    AllGather,
    Broadcast,
    Communication,
    GatherCounts,
)
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import MeshAxes, is_of_variable
from kerasmgpu.partitioner.runtime.report import (
    communication,
    part_of,
    shares,
)
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.partitioner.step.sizes import are_integers

if TYPE_CHECKING:
    from kerasmgpu.partitioner.runtime.written import Written

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


def sendings(
    communication: Iterable[tuple[Communication, int]], mesh: Mesh, rows: int
) -> Iterator[Sending]:
    """Yields a `Sending` for each tensor that replicas send in a step.

    Args:
        communication: Pairs of a `Communication`, and how many times it happens.
        rows: Integer, rows of a batch over all replicas.
    """
    for one, times in communication:
        kind, axes = one.name.partition(".")[0], one.along(mesh)
        for together in one.sizes(mesh):
            for tensor, size in shares(together, rows):
                combined = size * times
                sent = in_a_ring(kind, combined, mesh.num_devices(axes))
                yield Sending(one, kind, tensor, axes, combined, sent)


def in_a_ring(kind: str, num_bytes: int, num_replicas: int) -> int:
    """Returns the bytes that each replica sends for a collective.

    An all-reduce is a reduce-scatter and an all-gather, in each of which a
    replica passes on all parts but one (Patarasuk and Yuan, "Bandwidth optimal
    all-reduce algorithms for clusters of workstations", 2009).

    Args:
        num_bytes: Integer, bytes of the whole tensor.

    Example:

    >>> in_a_ring("all_reduce", 400, 4), in_a_ring("all_gather", 400, 4)
    (600, 300)
    """
    passes = 2 if kind == "all_reduce" else 1
    return -(-passes * num_bytes * (num_replicas - 1) // num_replicas)


def sent(written: "Written", rows: int) -> list[dict[str, Any]]:
    """Returns what the replicas send each other in one step.

    Args:
        rows: Integer, rows of a batch over all replicas.

    Returns:
        List of dictionaries: `"kind"` (`"all_reduce"`), `"purpose"`
        (`"gradients"`), `"axes"`, the `MeshAxes`, and `"bytes"` of
        the whole tensors, most bytes first. Communication inside a loop counts
        once.
    """
    found: Counter[tuple[str, str, MeshAxes]] = Counter()
    mesh = written.lowered.mesh
    for one in sendings(communication(written), mesh, rows):
        divides_rows = mesh.divides_rows and one.by.axis == 0
        purpose = _purpose(one.by, one.tensor, divides_rows)
        found[one.kind, purpose, one.axes] += one.combined
    return [
        {"kind": kind, "purpose": purpose, "axes": axes, "bytes": size}
        for (kind, purpose, axes), size in found.most_common()
    ]


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
