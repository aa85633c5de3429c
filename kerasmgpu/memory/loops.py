"""Walks through the loops, branches and calls of a function."""

import collections
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from kerasmgpu.memory.inferred_shapes import Static
from kerasmgpu.memory.ledger import Buffer, Ledger, VariableBuffer, release
from kerasmgpu.memory.written_function import (
    WrittenFunction,
    WrittenNode,
)
from kerasmgpu.memory.written_step import ACTIVATIONS, WORKSPACE, WrittenStep


class Walk(Protocol):
    """Interface of `walk.Walk`, a walk through a function."""

    step: WrittenStep
    function: WrittenFunction
    ledgers: Mapping[str, Ledger]

    def run(
        self, given: Sequence[Buffer], owned: Collection[int] = ()
    ) -> list[Buffer]:
        """Walks through the function; returns the buffers of its outputs."""

    def statics(self, node: WrittenNode) -> list[Static]:
        """Returns the `Static`s of a node's inputs."""

    def is_backward(self, node: WrittenNode) -> bool:
        """Whether a node is of the backward pass."""

    def inside(
        self,
        node: WrittenNode,
        name: str,
        given: Sequence[Static],
        ledgers: Mapping[str, Ledger] | None = None,
    ) -> "Walk":
        """Returns a `Walk` of the function `name`, a body of `node`.

        Args:
            ledgers: Ledgers to count in, by memory. Default: those of this walk.
        """


def region(
    walk: Walk, node: WrittenNode, bodies: list[str], inputs: list[Buffer]
) -> list[Buffer]:
    """Walks through a loop, branch or call.

    Args:
        bodies: Names of its functions. Of several branches, the one with the
            largest peak counts.
        inputs: Buffers of its inputs; a reference to each is dropped.

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
    """Walks through a loop's last round, when its lists are longest.

    Arguments and result are those of `region`; `name` is that of the body.
    """
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
    """Returns the numbers of the loop variables that no round changes."""
    return {
        number for number, one in enumerate(body.returned) if one == (number, 0)
    }


def _growth(
    walk: Walk, loop: WrittenNode, name: str, inputs: list[Buffer]
) -> dict[int, dict[Ledger, int]]:
    """Returns each list's growth per round: `{loop variable: {ledger: bytes}}`.

    Runs one round on copies of `inputs`; nothing is counted in the ledgers.
    """
    given = [_like(buffer) for buffer in inputs]
    ledger_of = {id(one): buffer.ledger for one, buffer in zip(given, inputs)}
    statics = walk.statics(loop)
    # The ledger that counts a new buffer tells in which memory it is.
    alone: dict[str, Ledger] = collections.defaultdict(Ledger)
    inside = walk.inside(loop, name, statics, alone)
    made = inside.run(given)
    of_alone = {id(ledger): memory for memory, ledger in alone.items()}
    is_list = [one.dtype == tf.variant for one in statics]
    invariant = _invariant(inside.function)
    # No growth: what a list had before, loop variables that stay the same, and
    # the content of variables, which each round reads from the same buffer.
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
    # If a round puts a result into a list, the round before has put this loop
    # variable there, and counted it.
    seen |= {id(old) for old, new in zip(given, made) if id(new) in put}
    grown: dict[int, dict[Ledger, int]] = {}
    for number, buffer in enumerate(made):
        for held in _held(buffer, seen) if is_list[number] else ():
            memory = of_alone.get(id(held.ledger))
            if memory is None:  # A loop variable: counted where it was made.
                ledger = ledger_of[id(held)]
            else:
                ledger = walk.ledgers[memory]
            if held.num_bytes and ledger is not None:
                counts = grown.setdefault(number, {})
                counts[ledger] = counts.get(ledger, 0) + held.num_bytes
    return grown


def _held(buffer: Buffer, seen: set[int]) -> list[Buffer]:
    """Returns a buffer and all it holds, if not in `seen`; adds them there."""
    found, waiting = [], [buffer]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            found.append(one)
            waiting += one.holds
    return found


def _like(buffer: Buffer) -> Buffer:
    """Copies a buffer for a trial walk, which never frees the copy."""
    copy = Buffer(buffer.num_bytes, buffer.category, (), buffer.scope)
    if isinstance(buffer, VariableBuffer):
        copy = VariableBuffer(_like(buffer.content))
    copy.references = 2  # It is never freed.
    return copy
