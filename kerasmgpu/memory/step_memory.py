"""The peak of a training step on one replica."""

import dataclasses

import tensorflow as tf

from kerasmgpu.memory.ledger import Buffer, Ledger, VariableBuffer
from kerasmgpu.memory.program_facts import (
    ACTIVATIONS,
    GRADIENTS,
    WORKSPACE,
    constant_bytes,
    of_all_rows,
)
from kerasmgpu.memory.state_bytes import part_bytes
from kerasmgpu.memory.traced_step import TracedStep
from kerasmgpu.memory.value_sizes import ValueSizes, known_sizes
from kerasmgpu.memory.walk import Setting, Walk
from kerasmgpu.partitioner.runtime.one_device import container
from kerasmgpu.partitioner.runtime.sharded_variable import variable_of
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.replica_arithmetic import MIN_SHARD_BYTES

_VARIABLES, _BATCH = "variables", "batch"


@dataclasses.dataclass(frozen=True)
class StepPeak:
    """Bytes on one replica when most are alive in a step, besides variables.

    Attributes:
        batch: Integer, the replica's share of the batch.
        activations: Integer, what the forward pass made and the backward pass
            reads.
        gradients: Integer, gradients and their sums.
        workspace: Integer, everything else.
        constants: Integer, constants of the step.
        assumed: Tuple of strings, sizes and loops of which nothing is known
            before the step runs; 64 was assumed.
        scopes: Dictionary from name scopes to bytes: activations, gradients
            and workspace by the operations that made them.
    """

    batch: int
    activations: int
    gradients: int
    workspace: int
    constants: int
    assumed: tuple[str, ...] = ()
    scopes: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def total(self) -> int:
        """Bytes of the step, with the batch."""
        return (
            self.batch
            + self.activations
            + self.gradients
            + self.workspace
            + self.constants
        )


def step_peak(
    step: TracedStep,
    num_replicas: int = 1,
    shard: str = "none",
    micro_batches: int = 1,
    rows: int | None = None,
) -> StepPeak:
    """Predicts the peak of a step by walking through its program.

    Args:
        step: `TracedStep`.
        num_replicas: Integer.
        shard: One of `state_bytes.SHARDS`.
        micro_batches: Integer, parts in which a replica runs its rows.
        rows: Integer, rows of the global batch. Default: the step's.

    Returns:
        `StepPeak`. With several micro-batches the sum of the gradients of
        those before is counted, too: its part, where they are scattered.
    """
    program = step.program
    lowered = program.written().lowered
    rows = step.rows if rows is None else rows
    known = known_sizes(program.trace.leaves, step.shapes)
    whole = of_all_rows(lowered) if micro_batches > 1 else ()
    sizes = ValueSizes(known, rows, num_replicas, micro_batches, whole)
    setting = Setting(
        sizes,
        num_replicas,
        divides_updates=shard in ("optimizer", "weights"),
        min_shard_bytes=MIN_SHARD_BYTES,
        jit_compile=step.jit_compile,
    )
    parts = _parts_of_variables(step, shard, num_replicas)
    ledger = Ledger()
    given: list[Buffer] = []
    for one in lowered.given:
        tensor = one.tensor
        if tensor.dtype == tf.resource:
            content = Buffer(parts.get(tensor, 0), _VARIABLES)
            given.append(VariableBuffer(ledger.made(content, 1)))
        else:
            share = Buffer(sizes.share_of_batch(tensor), _BATCH)
            given.append(ledger.made(share, 1))
    before = ledger.total
    batch = before - sum(parts.values())
    for buffer in given:
        buffer.references += 1  # Held by the caller.
    Walk(lowered, setting, ledger).run(given)
    gradients = ledger.at_peak.get(GRADIENTS, 0)
    activations = ledger.at_peak.get(ACTIVATIONS, 0)
    workspace = ledger.peak - before - gradients - activations
    if micro_batches > 1:
        divided = "weights" if setting.divides_updates else shard
        gradients += sum(
            part_bytes(one, divided, num_replicas)
            for one in step.variables
            if one.kind == "weight"
        )
    return StepPeak(
        batch,
        activations,
        gradients,
        workspace,
        constant_bytes(lowered),
        tuple(sorted(sizes.assumed | setting.assumed_rounds)),
        ledger.scopes_at_peak((ACTIVATIONS, GRADIENTS, WORKSPACE)),
    )


def _parts_of_variables(
    step: TracedStep, shard: str, num_replicas: int
) -> dict[Tensor, int]:
    """Bytes that a replica holds of each variable that the step captures."""
    parts: dict[Tensor, int] = {}
    for tensor, outer in step.program.trace.captured:
        variable = container(outer)
        if variable is None:
            variable = variable_of(outer)
        record = step.record_of.get(id(variable))
        if tensor.dtype != tf.resource:
            continue
        if record is not None:
            parts[tensor] = part_bytes(record, shard, num_replicas)
        elif variable is not None:
            size = variable.dtype.size
            parts[tensor] = variable.shape.num_elements() * size
    return parts
