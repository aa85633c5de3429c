"""Sums once over a variable's rows that several replicas have.

Variables can be divided along some of the mesh axes that are planned together,
as with `shard_over`: replicas along the others have equal rows, so a partial sum
over rows is there several times. All but the first ones along the others give 0
instead, so that it is a partial sum of all replicas like any other.
"""

from kerasmgpu.partitioner.ir.instructions import (
    FirstOnly,
    Instruction,
    Operation,
    Value,
    alike,
)
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.rules.kinds import PARTIAL, MeshAxes, Sharded


def sum_once(program: Lowered) -> None:
    """Inserts a `FirstOnly` behind each operation that makes such a sum."""
    (every,) = program.mesh.planning_axes
    program.instructions = [
        made
        for instruction in program.instructions
        for made in _with_first_only(instruction, every)
    ]


def _with_first_only(
    instruction: Instruction, every: MeshAxes
) -> list[Instruction]:
    if not isinstance(instruction, Operation):
        return [instruction]
    kinds = [one.kind for one in instruction.inputs]
    over = {kind.rows.over for kind in kinds if isinstance(kind, Sharded)}
    summed = next((axes for axes in over if axes != every), None)
    if summed is None:
        return [instruction]
    outputs = list(instruction.outputs)
    masks: list[Instruction] = []
    for number, one in enumerate(outputs):
        if one.kind == PARTIAL:
            outputs[number] = Value(alike(one.tensor), one.placement)
            masks.append(FirstOnly((outputs[number],), (one,), summed))
    instruction.outputs = tuple(outputs)
    return [instruction, *masks]
