"""Marks operations whose kernels fail for a share without rows.

TensorFlow's convolutions and pools on CPUs end the process, or return wrong
shapes, for no rows; cuDNN's recurrent layers refuse them. `empty_shares.py`
writes marked operations so that their kernels never get such a share.
"""

from kerasmgpu.partitioner.ir.instructions import Operation, Runs
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.rules.kinds import Sharded
from kerasmgpu.partitioner.rules.table import ON_WINDOWS
from kerasmgpu.partitioner.step.records import Trait, record


def guard_empty_shares(program: Lowered) -> None:
    """Sets `is_guarded` where a share can be empty and a kernel fails for it."""
    for one in program.programs():
        for instruction in one.instructions:
            if isinstance(instruction, Operation):
                instruction.is_guarded = _is_fragile(instruction, one)


def _is_fragile(operation: Operation, program: Lowered) -> bool:
    type = operation.node.type
    if operation.runs is Runs.ONCE:
        return False
    on_cpus = Trait.FRAGILE in record(type).traits and program.mesh.has_cpus
    if not on_cpus and {Trait.NEEDS_ROWS, Trait.MIRRORS}.isdisjoint(
        record(type).traits
    ):
        return False
    if (
        program.compiles(operation.node)
        and Trait.MIRRORS not in record(type).traits
    ):
        return False  # XLA's other kernels accept shares without rows.
    return any(
        isinstance(kind, Sharded)
        and not program.mesh.always_has_rows(kind.rows)
        for plan in operation.plans
        if plan.emit not in ON_WINDOWS  # Always with a row.
        for kind in (*plan.wants, *plan.gives)
    )
