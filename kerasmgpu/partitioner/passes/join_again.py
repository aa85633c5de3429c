"""Joins halos again for late uses, so that they aren't kept until then.

Images are joined with the rows of their neighbours for a convolution, and again
for the gradient of its filter. In between only the images, which are often kept
for other uses, and the neighbours' rows are in memory.
"""

from collections.abc import Mapping, Sequence

from kerasmgpu.partitioner.ir.instructions import (
    Instruction,
    JoinAgain,
    SendRows,
    Value,
    alike,
)
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.rules.kinds import WithHalo

_APART = 2
"""A value is joined again if this many others are used between two uses."""


def sends_halos(program: Lowered) -> bool:
    """Whether the pass runs on a program."""
    return any(isinstance(one, SendRows) for one in program.instructions)


def join_again(program: Lowered) -> None:
    """Inserts a `JoinAgain` before late uses of values with halos."""
    makers: dict[Value, Instruction] = {}
    uses: dict[Value, list[int]] = {}
    for position, instruction in enumerate(program.instructions):
        for one in dict.fromkeys(instruction.inputs):
            if _is_joined(one, makers):
                uses.setdefault(one, []).append(position)
        makers.update(dict.fromkeys(instruction.outputs, instruction))
    used = sorted(
        ((use, one) for one, its in uses.items() for use in its),
        key=lambda pair: pair[0],
    )
    again: dict[int, list[JoinAgain]] = {}
    for joined, (last, *others) in uses.items():
        current = joined
        for use in others:
            user = program.instructions[use]
            between = {one for at, one in used if last < at < use}
            if len(between - {joined}) >= _APART:
                after = [
                    makers[one]
                    for one in user.inputs
                    if one in makers and one != joined
                ]
                copies = _joined(joined, makers, after)
                again.setdefault(use, []).extend(copies)
                current = copies[-1].outputs[0]
            if current != joined:
                user.inputs = tuple(
                    current if one == joined else one for one in user.inputs
                )
            last = use
    program.instructions = [
        one
        for position, instruction in enumerate(program.instructions)
        for one in (*again.get(position, ()), instruction)
    ]


def _is_joined(one: Value, makers: Mapping[Value, Instruction]) -> bool:
    return isinstance(makers.get(one), SendRows) and one.has(WithHalo)


def _joined(
    one: Value,
    makers: Mapping[Value, Instruction],
    after: Sequence[Instruction],
) -> list[JoinAgain]:
    """Returns what joins a value again, along each axis that has a halo."""
    made = Value(alike(one.tensor), one.placement)
    (source,) = makers[one].inputs
    if not _is_joined(source, makers):
        return [JoinAgain((one,), (made,), tuple(after))]
    before = _joined(source, makers, after)
    inputs = one, source, before[-1].outputs[0]
    return [*before, JoinAgain(inputs, (made,), tuple(after))]
