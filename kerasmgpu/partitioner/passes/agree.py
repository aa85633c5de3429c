"""Broadcasts the first worker's value where workers can round differently.

The copies of a variable stay equal if the values that change it are equal. Sums
and gathered rows are, and so are results that elementwise kernels compute from
them. Other kernels add in an order of their own: where a whole value that such
a kernel computes changes a variable, all workers take the first worker's. They
also take its draws without a seed, and its results of Python functions.
"""

from collections.abc import Collection, Iterable, Sequence

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
from kerasmgpu.partitioner.step.graph import Graph, Tensor
from kerasmgpu.partitioner.step.records import Trait

_SAFE = {Trait.ELEMENTWISE, Trait.GENERATES, Trait.MOVES}


def agree(program: Lowered) -> None:
    """Inserts a `Broadcast` of each tensor of `must_agree` that can be sent.

    With one worker, inserts none.
    """
    if program.mesh.num_workers == 1:
        return
    found = must_agree(program.graph, program.plans)
    tensors = {one for one in found if may_differ(program.mesh, one)}
    for one in program.programs():
        result: list[Instruction] = []
        for instruction in one.instructions:
            result.append(instruction)
            if isinstance(instruction, Operation):
                result += _broadcasts(instruction, tensors)
        one.instructions = result


def must_agree(graph: Graph, plans: Sequence[Plans]) -> set[Tensor]:
    """Returns the tensors that can differ between workers, and must not.

    These are results of stateful operations, except on variables' copies, and
    whole results of kernels that add in an order of their own, where variables,
    loops or branches depend on them. Those inside of bodies are included.
    """
    found: set[Tensor] = set()
    for node in graph.nodes:
        if node not in plans[0].nodes:
            continue
        traits = node.traits
        if node.is_stateful and Trait.COPIED not in traits:
            found.update(node.outputs)
        if Trait.UPDATES in traits:
            found |= _causes(plans, node.inputs[1:])
        if node.bodies:
            found |= _causes(plans, node.inputs)
            details = [of_axis.nodes[node].details for of_axis in plans]
            for body, inner in zip(node.bodies, zip(*details)):
                found |= must_agree(body, inner)
                found |= _causes(inner, body.outputs)
    return found


def _causes(plans: Sequence[Plans], tensors: Iterable[Tensor]) -> set[Tensor]:
    """Returns results behind `tensors` that workers can round differently.

    The search from `tensors` towards their inputs ends at such a result, and at
    values that are equal on all workers.
    """
    found: set[Tensor] = set()
    waiting, seen = list(tensors), set()
    while waiting:
        tensor = waiting.pop()
        node = tensor.node
        if tensor in seen or node not in plans[0].nodes:
            continue
        seen.add(tensor)
        gives = [of_axis.nodes[node].gives for of_axis in plans]
        if (
            any(kinds[tensor.index] != REPLICATED for kinds in gives)
            or Trait.COPIED in node.traits
        ):
            continue  # Communication makes it equal.
        if (
            tensor.dtype.is_integer
            or tensor.dtype.is_bool
            or _SAFE & node.traits
        ):
            waiting += node.inputs
        elif node.inputs and not node.bodies:
            found.add(tensor)
    return found


def _broadcasts(
    operation: Operation, tensors: Collection[Tensor]
) -> list[Broadcast]:
    if operation.is_local:
        return []
    found: list[Broadcast] = []
    outputs: list[Value] = []
    for one in operation.outputs:
        if one.tensor in tensors:
            unequal = value(one.tensor, PER_WORKER, len(one.placement))
            outputs.append(unequal)
            found.append(Broadcast((unequal,), (one,)))
        else:
            outputs.append(one)
    operation.outputs = tuple(outputs)
    return found
