"""What is known of a program before it is walked through."""

import collections
import copy
import dataclasses
import functools

from kerasmgpu.flops.recomputation import is_backward
from kerasmgpu.memory.executor_order import executor_order
from kerasmgpu.partitioner.ir import instructions as ir
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.mesh import split
from kerasmgpu.partitioner.passes.lower_micro_batches import (
    lower_micro_batches,
)
from kerasmgpu.partitioner.passes.order_micro_batches import (
    order_micro_batches,
)
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, record

ACTIVATIONS, GRADIENTS, WORKSPACE = "activations", "gradients", "workspace"
"""What bytes count as at the peak."""

SHARE_BUFFERS = {
    "Bitcast",
    "CheckNumerics",
    "CheckNumericsV2",
    "EnsureShape",
    "ExpandDims",
    "Reshape",
    "Squeeze",
    "TensorListGetItem",
    "TensorListPopBack",
    "TensorListResize",
}
"""Operations whose outputs are their first input's buffer: other shapes of a
tensor, and elements of a list, which hold its whole buffer here."""

PUTS = {"TensorListPushBack", "TensorListSetItem"}


@dataclasses.dataclass
class Facts:
    """What is known of a program before it runs.

    Attributes:
        given: Its inputs.
        outputs: Its outputs.
        order: Its instructions in the executor's order.
        uses: How often each value is read or returned.
        kept: Tensors of the forward pass that the backward pass reads.
        fused: Values of elementwise operations that only such ones read.
    """

    given: list[ir.Value]
    outputs: list[ir.Value]
    order: list[ir.Instruction]
    uses: "collections.Counter[ir.Value]"
    kept: set[Tensor]
    fused: set[ir.Value]


@functools.lru_cache(maxsize=1024)
def facts_of(program: Lowered, num_replicas: int) -> Facts:
    ordered = executor_order(program, num_replicas)
    order, outputs = ordered.instructions, ordered.outputs
    uses = collections.Counter(outputs)
    kept: set[Tensor] = set()
    read_otherwise = set(outputs)
    for instruction in reversed(order):
        uses.update(instruction.inputs)
        node = getattr(instruction, "node", None)
        if node is not None and _keeps(node, kept):
            kept.update(one.tensor for one in instruction.inputs)
        if not _is_elementwise(instruction):
            read_otherwise.update(instruction.inputs)
    fused = {
        one
        for instruction in order
        if _is_elementwise(instruction)
        for one in instruction.outputs
        if uses[one] and one not in read_otherwise
    }
    return Facts(ordered.given, outputs, order, uses, kept, fused)


@functools.lru_cache(maxsize=64)
def of_all_rows(program: Lowered) -> frozenset[Tensor]:
    """Tensors that a device holds for all its rows, also in micro-batches.

    What looks at all rows, as a batch normalisation does, ends a phase of the
    micro-batches: what they need of it later is kept for all of them.

    Args:
        program: `ir.lowered.Lowered` of replicas without micro-batches.
    """
    parts = dataclasses.replace(
        program,
        mesh=split(program.mesh, 2),
        instructions=list(map(copy.copy, program.instructions)),
        phases={},
        after={},
    )
    lower_micro_batches(parts)
    order_micro_batches(parts)
    made = {
        one: phase
        for instruction, phase in parts.phases.items()
        for one in instruction.outputs
    }
    found: set[Tensor] = set()
    for instruction in parts.instructions:
        phase = parts.phases.get(instruction)
        kept = instruction.inputs
        if phase is not None:
            kept = tuple(o for o in kept if made.get(o, phase) < phase)
        else:
            kept += instruction.outputs
        found.update(one.tensor for one in kept)
        if isinstance(instruction, Region) and phase is None:
            for body in instruction.bodies:
                for inner in body.all_instructions():
                    found.update(one.tensor for one in inner.outputs)
    return frozenset(found)


def _keeps(node: Node, kept: set[Tensor]) -> bool:
    """Whether what a node reads is alive until the backward pass."""
    return (
        is_backward(node)
        or node.type in PUTS
        or node.type in SHARE_BUFFERS
        and not kept.isdisjoint(node.outputs)
    )


def _is_elementwise(instruction: ir.Instruction) -> bool:
    if not isinstance(instruction, ir.Operation):
        return False
    traits = record(instruction.node.type).traits
    return len(instruction.outputs) == 1 and (
        Trait.ELEMENTWISE in traits or instruction.node.type == "BiasAdd"
    )


def constant_bytes(program: Lowered) -> int:
    """Bytes of a program's constants, which stay on the device."""
    return sum(
        int(one.outputs[0].tensor.num_bytes)
        for one in program.all_instructions()
        if isinstance(one, ir.Constant)
        and one.outputs[0].tensor.num_bytes < float("inf")
    )
