"""Leaves sums over a sharded variable's rows to the first group of replicas.

With `Mesh.groups`, each group has all rows: a partial sum over them is complete
in every group. The replicas of the other groups give 0 instead, so that it is a
partial sum of all replicas like any other.
"""

from kerasmgpu.partitioner.ir.instructions import (
    FirstOnly,
    Instruction,
    Operation,
    Value,
    alike,
)
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.mesh import WITHIN_GROUPS
from kerasmgpu.partitioner.rules.kinds import PARTIAL, Sharded


def sum_in_first_group(program: Lowered) -> None:
    """Inserts a `FirstOnly` behind each operation that makes such a sum."""
    program.instructions = [
        made
        for instruction in program.instructions
        for made in _with_first_only(instruction)
    ]


def _with_first_only(instruction: Instruction) -> list[Instruction]:
    if not isinstance(instruction, Operation) or not any(
        isinstance(one.kind, Sharded) and one.kind.rows.over == WITHIN_GROUPS
        for one in instruction.inputs
    ):
        return [instruction]
    outputs = list(instruction.outputs)
    masks: list[Instruction] = []
    for number, one in enumerate(outputs):
        if one.kind == PARTIAL:
            outputs[number] = Value(alike(one.tensor), one.placement)
            masks.append(FirstOnly((outputs[number],), (one,), of_groups=True))
    instruction.outputs = tuple(outputs)
    return [instruction, *masks]
