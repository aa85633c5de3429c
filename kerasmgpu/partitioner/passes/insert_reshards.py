"""Puts a `Reshard` wherever a value is needed in another placement."""

from kerasmgpu.partitioner.ir.instructions import (
    Instruction,
    Reshard,
    Value,
    value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.rules.kinds import KNOWN


def insert_reshards(program: Lowered) -> None:
    """Inserts a `Reshard` for each value that is needed and that nothing makes.

    It stands in front of the first instruction that needs the value. Its source
    is the tensor in the kind in which it is passed or computed; `KNOWN` for
    sizes, which no operation computes.
    """
    made = dict.fromkeys(program.given)
    source = {one.tensor: one for one in program.given}
    result: list[Instruction] = []

    def need(wanted: Value) -> None:
        if wanted in made:
            return
        known = value(wanted.tensor, KNOWN, len(program.plans))
        origin = source.get(wanted.tensor, known)
        result.append(Reshard((origin,), (wanted,)))
        made[wanted] = None

    for instruction in program.instructions:
        for wanted in instruction.inputs:
            need(wanted)
        result.append(instruction)
        for one in instruction.outputs:
            made[one] = None
            source.setdefault(one.tensor, one)
    for wanted in program.outputs:
        need(wanted)
    program.instructions = result
