"""Workers that may have computed other bits take the first worker's value.

Copies of a variable stay the same because what they are changed by is the same.
Sums and gathered rows are, and so is what elementwise kernels make of them. Other
kernels add in an order of their own: what they make of whole values, if it
changes a variable, is taken from the first process. So is what has no cause in
the graph: draws without a seed, and what Python returns.
"""

from kerasmgpu.partitioner.ir.instructions import (
    Broadcast,
    Instruction,
    Operation,
    Value,
    value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.kinds import PER_WORKER


def agree(program: Lowered) -> None:
    """Puts a `Broadcast` behind what makes such values."""
    result: list[Instruction] = []
    for instruction in program.instructions:
        result.append(instruction)
        if isinstance(instruction, Operation):
            result += _broadcasts(instruction, program)
    program.instructions = result
    for region in program.regions:
        for body in region.bodies:
            agree(body)


def _broadcasts(operation: Operation, program: Lowered) -> list[Broadcast]:
    if operation.plan.is_local:
        return []
    found: list[Broadcast] = []
    outputs: list[Value] = []
    for one in operation.outputs:
        tensor = one.tensor
        if tensor in program.plans.must_agree and program.replicas.may_differ(
            tensor
        ):
            unequal = value(tensor, PER_WORKER)
            outputs.append(unequal)
            found.append(Broadcast((unequal,), (one,)))
        else:
            outputs.append(one)
    operation.outputs = tuple(outputs)
    return found
