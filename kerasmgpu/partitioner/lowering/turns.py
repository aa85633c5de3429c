"""Adds control dependencies, so that micro-batches take turns on their device.

`passes/order_micro_batches.py` assigns each instruction that runs for every
micro-batch to a phase, and the writer records the turn of each node: a phase
and a micro-batch. Nodes that need no other node of their turn are made to wait
for the end of the turn before, so that its activations are freed before others
are made.
"""

import collections
import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.lowering.function_writer import last_collectives
from kerasmgpu.partitioner.step.definitions import node_name
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.records import Trait, record

if TYPE_CHECKING:
    from tensorflow.core.framework import node_def_pb2


_EXPENSIVE = {Trait.BRANCH, Trait.LOOP, Trait.PRODUCT, Trait.RECURRENT}

Turn = tuple[int, int]
"""A phase, and the place of a micro-batch."""


def order_collectives(build: Build) -> None:
    """Makes collectives wait for one another in the order of their turns.

    They were written in another order: each instruction's for all
    micro-batches.
    """
    last: dict[str, str] = {}
    for _, chain, name in sorted(build.collectives, key=lambda one: one[0]):
        node = build.writer.node(name)
        before = last_collectives(last, chain)
        node.input.extend(f"^{other}" for other in before)
        last[chain] = name


def take_turns(build: Build) -> None:
    """Makes each turn of a device wait for the end of the turn before."""
    writer = build.writer
    if not writer.turns:
        return
    nodes = writer.needed_nodes(build.outputs)
    turn_of = {
        name: writer.turns[name]
        for name in nodes
        if name in writer.turns and name not in writer.on_host
    }
    _order_products(nodes, turn_of)
    first, last = _ends(nodes, turn_of)
    by_device: dict[str, set[Turn]] = collections.defaultdict(set)
    for phase, place in turn_of.values():
        by_device[build.device(place)].add((phase, place))
    for device, turns in by_device.items():
        earlier: set[str] = set()
        for turn, next_turn in itertools.pairwise(sorted(turns)):
            _add_ancestors(earlier, last[turn], nodes)
            # A node that an earlier turn needs can't wait for its end.
            waiting = [n for n in first[next_turn] if n not in earlier]
            if not waiting:
                continue
            phase, place = turn
            name = f"replica_{place}/end_of_turn_{phase}"
            writer.op("NoOp", [], device, name, last[turn])
            barrier = writer.last
            for name in waiting:
                nodes[name].input.append(f"^{barrier}")
            nodes[barrier] = writer.node(barrier)
            earlier.add(barrier)
    writer.sort(build.twins)


def assign_last(build: Build) -> None:
    """Makes assignments wait for all other nodes, on all workers.

    Nodes that need an assignment still run after it.
    """
    nodes = build.writer.needed_nodes(build.outputs)
    assigning = {
        name
        for name, node in nodes.items()
        if Trait.UPDATES in record(node.op).traits
    }
    after = set(assigning)  # Assignments, and nodes that need one.
    ends: dict[str, None] = {}  # Others, which nothing so far needs.
    for name, node in nodes.items():
        needs = list(map(node_name, node.input))
        if not after.isdisjoint(needs):
            after.add(name)
        if name not in after:
            for source in needs:
                ends.pop(source, None)
            ends[name] = None
    build.op("NoOp", [], HOST, "computed", list(ends))
    # Workers agree after the collectives that `computed` waits for, and before
    # those of values that are read after an assignment.
    build.last_collective = {}
    computed = build.replicas.agree_to_assign(build, build.writer.last)
    for name in assigning:
        nodes[name].input.append(f"^{computed}")
    build.writer.sort(build.twins)


def _order_products(
    nodes: "Mapping[str, node_def_pb2.NodeDef]", turn_of: Mapping[str, Turn]
) -> None:
    """Makes each expensive node of a turn wait for earlier nodes of the turn.

    These are products, convolutions, recurrent layers, loops and branches.

    Otherwise TensorFlow could run the backward pass through all layers first
    and compute the gradients of weights last, with all gradients of activations
    alive.
    """
    # The nodes of each turn that no later one waits for yet.
    before: dict[Turn, dict[str, None]] = collections.defaultdict(dict)
    for name, turn in turn_of.items():
        ends = before[turn]
        needs = set(map(node_name, nodes[name].input))
        if not _EXPENSIVE.isdisjoint(record(nodes[name].op).traits):
            controls = [f"^{end}" for end in ends if end not in needs]
            nodes[name].input.extend(controls)
            ends.clear()
        for source in needs:
            ends.pop(source, None)
        ends[name] = None


def _ends(
    nodes: "Mapping[str, node_def_pb2.NodeDef]", turn_of: Mapping[str, Turn]
) -> tuple[dict[Turn, list[str]], dict[Turn, list[str]]]:
    """Returns the first nodes of each turn, and the last.

    The first need no other node of their turn, and no other node of the turn
    needs the last.
    """
    inner: set[str] = set()
    used: set[str] = set()
    for name, turn in turn_of.items():
        for source in map(node_name, nodes[name].input):
            if turn_of.get(source) == turn:
                inner.add(name)
                used.add(source)
    first: dict[Turn, list[str]] = collections.defaultdict(list)
    last: dict[Turn, list[str]] = collections.defaultdict(list)
    for name, turn in turn_of.items():
        if name not in inner:
            first[turn].append(name)
        if name not in used:
            last[turn].append(name)
    return first, last


def _add_ancestors(
    found: set[str],
    names: Iterable[str],
    nodes: "Mapping[str, node_def_pb2.NodeDef]",
) -> None:
    """Adds nodes, and all nodes that they depend on, to `found`."""
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and name in nodes:
            found.add(name)
            waiting += map(node_name, nodes[name].input)
