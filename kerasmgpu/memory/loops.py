"""Loops and branches in a walk through a program."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import tensorflow as tf

from kerasmgpu.memory.ledger import Buffer, Ledger, VariableBuffer
from kerasmgpu.memory.program_facts import ACTIVATIONS, WORKSPACE
from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.step import loop_rounds
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.replica_arithmetic import ASSUMED_SIZE


class Walk(Protocol):
    """The walk through a program; see `walk.Walk`."""

    setting: Any
    ledger: Ledger
    rounds: dict[Node, int]

    def run(
        self, given: Sequence[Buffer], owned: Collection[int] = ()
    ) -> list[Buffer]:
        """Runs it; returns the buffers of its outputs."""

    def shared(self, buffer: Buffer, one: Value) -> Buffer:
        """An existing buffer for one more value."""

    def is_backward(self, node: Node) -> bool:
        """Whether a node is of the backward pass."""

    def inside(self, region: Region, body: Lowered, ledger: Ledger) -> "Walk":
        """The walk of a body of a loop or branch."""


def region(
    walk: Walk, instruction: Region, inputs: list[Buffer]
) -> list[Buffer]:
    """Walks through a loop or branch.

    Args:
        walk: The `Walk` of the program that it is in.
        instruction: The loop or branch.
        inputs: Buffers of its inputs, each with a reference to drop.

    Returns:
        Buffers of its outputs.
    """
    write = _loop if instruction.is_loop else _branch
    made = write(walk, instruction, inputs)
    for one, buffer in zip(instruction.outputs, made):
        walk.shared(buffer, one)
    for buffer in made:
        walk.ledger.release(buffer)
    return made


def _branch(walk: Walk, branch: Region, inputs: list[Buffer]) -> list[Buffer]:
    """The body with the highest peak."""
    peaks = []
    for body in branch.bodies:
        alone = walk.inside(branch, body, Ledger())
        alone.run([_like(buffer) for buffer in inputs[1:]])
        peaks.append(alone.ledger.peak)
    largest = branch.bodies[peaks.index(max(peaks))]
    made = walk.inside(branch, largest, walk.ledger).run(inputs[1:])
    for buffer in inputs:
        walk.ledger.release(buffer)
    return made


def _loop(walk: Walk, loop: Region, inputs: list[Buffer]) -> list[Buffer]:
    """The last round: lists that grow are as long as the rounds before."""
    body, ledger = loop.bodies[1], walk.ledger
    rounds = _rounds(walk, loop)
    is_kept = not walk.is_backward(loop.node)
    category = ACTIVATIONS if is_kept else WORKSPACE
    scope, _, _ = loop.node.name.rpartition("/")
    earlier = {
        number: ledger.made(
            Buffer((rounds - 1) * num_bytes, category, (), scope), 1
        )
        for number, num_bytes in _growth(walk, loop, inputs).items()
    }
    invariant = _invariant(loop)
    changed = [n for n in range(len(inputs)) if n not in invariant]
    made = walk.inside(loop, body, ledger).run(inputs, owned=changed)
    for number in invariant:
        ledger.release(inputs[number])
    for number, buffer in earlier.items():
        whole = Buffer(0, category, (made[number], buffer))
        ledger.made(whole, 1)
        ledger.release(made[number])
        ledger.release(buffer)
        made[number] = whole
    return made


def _invariant(loop: Region) -> set[int]:
    """Numbers of the loop variables that stay as they are."""
    body = loop.bodies[1]
    return {
        number
        for number, (one, other) in enumerate(zip(body.given, body.outputs))
        if one.tensor is other.tensor
    }


def _growth(walk: Walk, loop: Region, inputs: list[Buffer]) -> dict[int, int]:
    """Bytes by which each list grows in a round, by number."""
    given = [_like(buffer) for buffer in inputs]
    body, invariant = loop.bodies[1], _invariant(loop)
    made = walk.inside(loop, body, Ledger()).run(given)
    # Loop variables that were put into a list stay there.
    seen = {
        id(buffer)
        for number, (buffer, one) in enumerate(zip(given, body.given))
        if number in invariant or one.tensor.dtype == tf.variant
    }
    lists = [
        buffer
        for one, buffer in zip(body.outputs, made)
        if one.tensor.dtype == tf.variant
    ]
    put = {id(one) for buffer in lists for one in _held(buffer, set(seen))}
    # What a round puts into a list as its result is the next one's variable,
    # which is in memory once.
    seen |= {id(old) for old, new in zip(given, made) if id(new) in put}
    grown = {}
    for number, (one, buffer) in enumerate(zip(body.outputs, made)):
        if one.tensor.dtype == tf.variant:
            num_bytes = sum(held.num_bytes for held in _held(buffer, seen))
            if num_bytes:
                grown[number] = num_bytes
    return grown


def _held(buffer: Buffer, seen: set[int]) -> list[Buffer]:
    """A list's elements, but those that were seen; marks them as seen."""
    found, waiting = [], [buffer]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            found.append(one)
            waiting += one.holds
    return found


def _rounds(walk: Walk, loop: Region) -> int:
    """Rounds of a loop for this batch."""
    size = loop_rounds.rounds_of(loop.node, walk.rounds)
    rounds = 0
    if size is not None:
        rounds = walk.setting.sizes.value_of(size) or 0
    if rounds < 1:
        walk.setting.assumed_rounds.add(f"rounds of {loop.node.name}")
        rounds = ASSUMED_SIZE
    walk.rounds[loop.node] = rounds
    return rounds


def _like(buffer: Buffer) -> Buffer:
    """A buffer of the same size for a walk of which only the peak counts."""
    copy = Buffer(buffer.num_bytes, buffer.category, (), buffer.scope)
    if isinstance(buffer, VariableBuffer):
        copy = VariableBuffer(_like(buffer.content))
    copy.references = 2  # It is never freed.
    return copy
