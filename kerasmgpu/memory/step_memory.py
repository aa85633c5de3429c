"""Predicts the peak memory of a training step on one replica."""

import collections
import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from kerasmgpu.memory.ledger import Buffer, Ledger, VariableBuffer
from kerasmgpu.memory.state_bytes import Setting
from kerasmgpu.memory.traced_step import TracedStep
from kerasmgpu.memory.walk import Walk
from kerasmgpu.memory.written_step import (
    ACTIVATIONS,
    BATCH,
    CONSTANTS,
    GATHERED,
    GRADIENTS,
    WORKSPACE,
    WrittenStep,
)
from kerasmgpu.partitioner.runtime.imagined import ImaginedHandle
from kerasmgpu.partitioner.step.places import HOST

_VARIABLES = "variables"


@dataclasses.dataclass(frozen=True)
class StepPeak:
    """Bytes alive in one memory at the peak of a step, without variables.

    Attributes:
        batch: Integer, bytes of its replicas' shares of the batch.
        gathered: Integer, bytes of whole weights that were gathered.
        activations: Integer, bytes of values of the forward pass that the
            backward pass reads.
        gradients: Integer, bytes of gradients and their sums.
        workspace: Integer, bytes of everything else.
        constants: Integer, bytes of the step's constants.
        assumed: Tuple of strings, names of sizes and loops that are unknown
            before the step runs; 64 was assumed for each.
        host: Integer, bytes in the memory of a worker's host at its own peak, with
            slots there; 0 where replicas share that memory.
        scopes: Dictionary from name scopes to bytes of the activations,
            gradients and workspace that operations in them made.
    """

    batch: int
    gathered: int
    activations: int
    gradients: int
    workspace: int
    constants: int
    assumed: tuple[str, ...] = ()
    host: int = 0
    scopes: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def total(self) -> int:
        """Bytes of all parts, with the batch."""
        return (
            self.batch
            + self.gathered
            + self.activations
            + self.gradients
            + self.workspace
            + self.constants
        )


def step_peak(
    step: TracedStep,
    setting: Setting,
    temporary: Mapping[str, int] | None = None,
) -> StepPeak:
    """Predicts the peak of a step by walking through the program that runs.

    Returns that of the first worker's device that needs most.

    Args:
        temporary: Dictionary, what XLA's clusters allocate besides their results,
            in bytes, by the nodes that call them. Default: these are unknown, and
            the operations in clusters are walked through.
    """
    written = WrittenStep(step, setting, with_clusters=bool(temporary))
    written.temporary = temporary or {}
    ledgers: dict[str, Ledger] = collections.defaultdict(Ledger)
    given: list[Buffer] = []
    for what, static in written.arguments:
        if isinstance(what, ImaginedHandle):
            place = HOST if what.variable.is_offloaded else what.place
        else:
            place = what
        ledger = ledgers[written.memory_of_place(place)]
        if static.dtype == tf.resource:
            size = 0
            if static.content is not None:
                held = dataclasses.replace(static, dtype=static.content)
                size = held.num_bytes
            content = ledger.made(Buffer(size, _VARIABLES), 1)
            given.append(ledger.made(VariableBuffer(content), 1))
        else:
            is_batch = isinstance(what, int)
            category = BATCH if is_batch else CONSTANTS
            buffer = Buffer(static.num_bytes, category)
            given.append(ledger.made(buffer, 1))  # Held by the caller.
    local = {
        written.memory_of_place(place) for place in range(setting.num_local)
    }
    before = {memory: ledgers[memory].at_peak for memory in local}
    Walk(written, written.main, ledgers).run(given)
    variables = {memory: before[memory].get(_VARIABLES, 0) for memory in local}
    memory = max(local, key=lambda one: ledgers[one].peak - variables[one])
    ledger = ledgers[memory]
    parts = {
        category: ledger.at_peak.get(category, 0)
        for category in (BATCH, GATHERED, ACTIVATIONS, GRADIENTS, CONSTANTS)
    }
    return StepPeak(
        **parts,
        workspace=ledger.peak - variables[memory] - sum(parts.values()),
        assumed=tuple(sorted(written.assumed)),
        host=0 if setting.shares_memory else ledgers["host"].peak,
        scopes=ledger.scopes_at_peak((ACTIVATIONS, GRADIENTS, WORKSPACE)),
    )
