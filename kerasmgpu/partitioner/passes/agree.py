"""Workers whose kernels may round differently take the first worker's value.

The copies of a variable stay equal because the values that change it are equal.
Sums and gathered rows are, and what elementwise kernels compute from them. Other
kernels add in an order of their own: where a whole value that they compute
changes a variable, all take the first worker's. The same holds for values without
a cause in the graph: draws without a seed, and what Python functions return.
"""

from collections.abc import Collection, Iterable

from kerasmgpu.partitioner.ir.instructions import (
    Broadcast,
    Instruction,
    Operation,
    Value,
    value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.ir.sent_types import may_differ
from kerasmgpu.partitioner.rules.kinds import PER_WORKER, REPLICATED
from kerasmgpu.partitioner.rules.table import Plans
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, record

_SAFE = {Trait.ELEMENTWISE, Trait.GENERATES, Trait.MOVES}


def agree(program: Lowered) -> None:
    """Puts a `Broadcast` behind each operation that gives such a value."""
    found = must_agree(program.graph, program.plans)
    tensors = {one for one in found if may_differ(program.mesh, one)}
    for one in program.programs():
        result: list[Instruction] = []
        for instruction in one.instructions:
            result.append(instruction)
            if isinstance(instruction, Operation):
                result += _broadcasts(instruction, tensors)
        one.instructions = result


def must_agree(graph: Graph, plans: Plans) -> set[Tensor]:
    """Whole tensors that change variables and that workers may round differently.

    Includes those of loops and branches.
    """
    found: set[Tensor] = set()
    for node in graph.nodes:
        plan = plans.nodes.get(node)
        if plan is None:
            continue
        traits = record(node.type).traits
        if node.is_stateful and Trait.COPIED not in traits:
            found.update(node.outputs)
        if Trait.UPDATES in traits:
            found |= _causes(plans, node.inputs[1:])
        if node.bodies:
            found |= _causes(plans, node.inputs)
            for body, inner in zip(node.bodies, plan.details):
                found |= must_agree(body, inner)
                found |= _causes(inner, body.outputs)
    return found


def _causes(plans: Plans, tensors: Iterable[Tensor]) -> set[Tensor]:
    """What tensors are computed from, up to values that are equal anyway."""
    found: set[Tensor] = set()
    waiting, seen = list(tensors), set()
    while waiting:
        tensor = waiting.pop()
        node = tensor.node
        if tensor in seen or node not in plans.nodes:
            continue
        seen.add(tensor)
        if (
            plans.nodes[node].gives[tensor.index] != REPLICATED
            or Trait.COPIED in record(node.type).traits
        ):
            continue  # Communication makes it equal.
        if tensor.dtype.is_integer or tensor.dtype.is_bool or _is_safe(node):
            waiting += node.inputs
        elif node.inputs and not node.bodies:
            found.add(tensor)
    return found


def _is_safe(node: Node) -> bool:
    return not _SAFE.isdisjoint(record(node.type).traits)


def _broadcasts(
    operation: Operation, tensors: Collection[Tensor]
) -> list[Broadcast]:
    if operation.plan.is_local:
        return []
    found: list[Broadcast] = []
    outputs: list[Value] = []
    for one in operation.outputs:
        if one.tensor in tensors:
            unequal = value(one.tensor, PER_WORKER)
            outputs.append(unequal)
            found.append(Broadcast((unequal,), (one,)))
        else:
            outputs.append(one)
    operation.outputs = tuple(outputs)
    return found
