"""Adds up what replicas send in a step, by collective and purpose."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from kerasmgpu.partitioner.ir.instructions import (
    AllGather,
    Broadcast,
    Communication,
    GatherCounts,
    Sent,
)
from kerasmgpu.partitioner.rules.kinds import is_of_variable
from kerasmgpu.partitioner.runtime.report import (
    bytes_of,
    communication,
    part_of,
)
from kerasmgpu.partitioner.step.sizes import are_integers

if TYPE_CHECKING:
    from kerasmgpu.partitioner.runtime.written import Written

_BACKWARD = ("gradient_tape", "gradients")
"""First scopes of the operations of a backward pass."""


def sent(written: "Written", rows: int) -> list[dict[str, Any]]:
    """Returns what the replicas send each other in one step.

    Args:
        written: `written.Written` of a training step.
        rows: Integer, rows of a batch over all replicas.

    Returns:
        List of dictionaries: `"kind"` (`"all_reduce"`), `"purpose"`
        (`"gradients"`) and `"bytes"` of the whole tensors, most bytes first.
        Communication inside a loop counts once.
    """
    found: Counter[tuple[str, str]] = Counter()
    for one, times in communication(written):
        for tensor in one.sizes(written.lowered.mesh):
            key = one.name.partition(".")[0], _purpose(one, tensor)
            found[key] += bytes_of(tensor, rows) * times
    return [
        {"kind": kind, "purpose": purpose, "bytes": size}
        for (kind, purpose), size in found.most_common()
    ]


def _purpose(one: Communication, sent: Sent) -> str:
    tensor = sent[0]
    if isinstance(one, GatherCounts):
        return "numbers of rows"
    if isinstance(one, Broadcast):
        return "agreement of the workers"
    if isinstance(one, AllGather) and is_of_variable(
        one.inputs[0].placement[one.axis]
    ):
        return "sharded variables"
    if tensor.node.name.startswith(_BACKWARD):
        return "gradients"
    if part_of(tensor.node.name) == "the step itself":
        return "loss and metrics"
    if tensor.shape is not None and are_integers(tensor.shape):
        return "statistics of batches"
    return "activations"
