"""Loops, branches and calls in a walk through a function."""

import collections
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from kerasmgpu.memory.ledger import Buffer, Ledger, VariableBuffer, release
from kerasmgpu.memory.written_function import (
    Static,
    WrittenFunction,
    WrittenNode,
)
from kerasmgpu.memory.written_step import ACTIVATIONS, WORKSPACE, WrittenStep


class Walk(Protocol):
    """The walk through a function; see `walk.Walk`."""

    step: WrittenStep
    function: WrittenFunction
    ledgers: Mapping[str, Ledger]

    def run(
        self, given: Sequence[Buffer], owned: Collection[int] = ()
    ) -> list[Buffer]:
        """Runs it; returns the buffers of its outputs."""

    def statics(self, node: WrittenNode) -> list[Static]:
        """What is known of a node's inputs."""

    def is_backward(self, node: WrittenNode) -> bool:
        """Whether a node is of the backward pass."""

    def inside(
        self,
        node: WrittenNode,
        name: str,
        given: Sequence[Static],
        ledgers: Mapping[str, Ledger] | None = None,
    ) -> "Walk":
        """The walk of a body of a loop, branch or call."""


def region(
    walk: Walk, node: WrittenNode, bodies: list[str], inputs: list[Buffer]
) -> list[Buffer]:
    """Walks through a loop, branch or call.

    Args:
        walk: The `Walk` of the function that it is in.
        node: The loop, branch or call.
        bodies: Names of its functions.
        inputs: Buffers of its inputs, each with a reference to drop.

    Returns:
        Buffers of its outputs, with a reference each.
    """
    if node.type.endswith("While"):
        return _loop(walk, node, bodies[-1], inputs)
    given = walk.statics(node)
    is_call = node.type.endswith("PartitionedCall")
    first = 0 if is_call else 1  # A branch takes its condition first.
    peaks = []
    for name in bodies if len(bodies) > 1 else ():
        alone: Mapping[str, Ledger] = collections.defaultdict(Ledger)
        inside = walk.inside(node, name, given[first:], alone)
        inside.run([_like(buffer) for buffer in inputs[first:]])
        peaks.append(sum(ledger.peak for ledger in alone.values()))
    largest = bodies[peaks.index(max(peaks)) if peaks else 0]
    made = walk.inside(node, largest, given[first:]).run(inputs[first:])
    for buffer in inputs:
        release(buffer)
    return made


def _loop(
    walk: Walk, loop: WrittenNode, name: str, inputs: list[Buffer]
) -> list[Buffer]:
    """The last round: lists that grow are as long as the rounds before."""
    given = walk.statics(loop)
    inside = walk.inside(loop, name, given)
    rounds = walk.step.rounds_of(loop)
    category = WORKSPACE if walk.is_backward(loop) else ACTIVATIONS
    scope, _, _ = loop.name.rpartition("/")
    earlier = {}
    for number, grown in _growth(walk, loop, name, inputs).items():
        for ledger, num_bytes in grown.items():
            buffer = Buffer((rounds - 1) * num_bytes, category, (), scope)
            earlier.setdefault(number, []).append(ledger.made(buffer, 1))
    invariant = _invariant(inside.function)
    changed = [n for n in range(len(inputs)) if n not in invariant]
    made = inside.run(inputs, owned=changed)
    for number in invariant:
        release(inputs[number])
    for number, buffers in earlier.items():
        whole = Buffer(0, category, (made[number], *buffers))
        for buffer in whole.holds:
            buffer.references += 1
        whole.references = 1
        release(made[number])
        for buffer in buffers:
            release(buffer)
        made[number] = whole
    return made


def _invariant(body: WrittenFunction) -> set[int]:
    """Numbers of the loop variables that stay as they are."""
    return {
        number for number, one in enumerate(body.returned) if one == (number, 0)
    }


def _growth(
    walk: Walk, loop: WrittenNode, name: str, inputs: list[Buffer]
) -> dict[int, dict[Ledger, int]]:
    """Bytes by which each list grows in a round, by number and ledger."""
    given = [_like(buffer) for buffer in inputs]
    ledger_of = {id(one): buffer.ledger for one, buffer in zip(given, inputs)}
    statics = walk.statics(loop)
    # What a walk allocates tells its memory by the ledger there.
    alone: dict[str, Ledger] = collections.defaultdict(Ledger)
    inside = walk.inside(loop, name, statics, alone)
    made = inside.run(given)
    of_alone = {id(ledger): memory for memory, ledger in alone.items()}
    is_list = [one.dtype == tf.variant for one in statics]
    invariant = _invariant(inside.function)
    # Loop variables that were put into a list stay there, and what is read of a
    # variable in each round is in memory once.
    seen = {
        id(buffer)
        for number, buffer in enumerate(given)
        if number in invariant or is_list[number]
    }
    seen |= {
        id(one.content) for one in given if isinstance(one, VariableBuffer)
    }
    lists = [buffer for buffer, variant in zip(made, is_list) if variant]
    put = {id(one) for buffer in lists for one in _held(buffer, set(seen))}
    # What a round puts into a list as its result is the next one's variable,
    # which is in memory once.
    seen |= {id(old) for old, new in zip(given, made) if id(new) in put}
    grown: dict[int, dict[Ledger, int]] = {}
    for number, buffer in enumerate(made):
        for held in _held(buffer, seen) if is_list[number] else ():
            memory = of_alone.get(id(held.ledger))
            if memory is None:  # A variable of the loop, where it was made.
                ledger = ledger_of[id(held)]
            else:
                ledger = walk.ledgers[memory]
            if held.num_bytes and ledger is not None:
                counts = grown.setdefault(number, {})
                counts[ledger] = counts.get(ledger, 0) + held.num_bytes
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


def _like(buffer: Buffer) -> Buffer:
    """A buffer of the same size for a walk of which only the peak counts."""
    copy = Buffer(buffer.num_bytes, buffer.category, (), buffer.scope)
    if isinstance(buffer, VariableBuffer):
        copy = VariableBuffer(_like(buffer.content))
    copy.references = 2  # It is never freed.
    return copy
