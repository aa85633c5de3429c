"""Adds up what replicas send in a step, by collective and purpose."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from kerasmgpu.partitioner.ir.instructions import (
    AllGather,
    Broadcast,
    Communication,
    GatherCounts,
)
from kerasmgpu.partitioner.mesh import MeshAxes
from kerasmgpu.partitioner.rules.kinds import is_of_variable
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
    for one, times in communication(written):
        divides_rows = mesh.divides_rows and one.axis == 0
        for together in one.sizes(mesh):
            for tensor, size in shares(together, rows):
                purpose = _purpose(one, tensor, divides_rows)
                key = one.name.partition(".")[0], purpose, one.along(mesh)
                found[key] += size * times
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
