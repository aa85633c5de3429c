"""Orders assignments, so that all replicas make those of a step, or none does.

Where an operation fails, TensorFlow aborts what other devices wait for: some
copies of a variable would be assigned, others not. So assignments wait until
everything else has run on all replicas, and what needs one of them waits for
all.

On one device a failure stops only what needs the operation. So assignments that
don't need the operations that fail most often (`_can_fail`) precede these, and
those that don't need the batch precede all that takes it.

Each node gets a level: assignments an even one, operations that can fail an odd
one, others that of what they need, and one more behind an assignment. Between
two levels is a barrier.
"""

import collections
from collections.abc import Callable, Collection, Iterable

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.lowering.content_names import functions_in
from kerasmgpu.partitioner.step.definitions import node_name
from kerasmgpu.partitioner.step.records import CAN_FAIL, Trait, record

_FIRST_CHECK = 3
"""Lowest level of what can fail, behind assignments that need the batch only."""

_LATE = {"Cast", "Identity", "Pack", "Unpack"}
"""Operations, besides floating-point elementwise ones, that compute an update
and can't fail."""


def update_together(build: Build) -> None:
    """Writes the barriers between the levels of a function.

    Not where nothing checks values or runs Python: steps of most models.
    """
    step = _Step(build)
    if not step.updates or not step.checks:
        return
    step.find_levels()
    barriers = _Barriers(build, step)
    for level in sorted(set(step.level.values()) | set(step.own.values())):
        barriers.write(level)
    build.writer.sort(build.twins)


class _Step:
    """The levels of a function's nodes.

    Attributes:
        nodes: The nodes that are needed, in topological order.
        needs: For each, those that it needs.
        updates: Names of nodes that change variables.
        checks: Names of nodes that can fail, and precede assignments that need
            them but no others.
        level: Maps names of nodes to their levels.
        own: Levels of `updates` and `checks` only.
    """

    def __init__(self, build: Build) -> None:
        self._functions = {
            function.signature.name: function for function in build.library
        }
        self.nodes = build.writer.needed_nodes(build.outputs)
        self.needs = {
            name: [
                source
                for source in map(node_name, node.input)
                if source in self.nodes
            ]
            for name, node in self.nodes.items()
        }
        self.updates = {
            name
            for name, node in self.nodes.items()
            if self._has(node, _changes_variables)
        }
        self.checks = {
            name
            for name, node in self.nodes.items()
            if name not in self.updates and self._has(node, _can_fail)
        }
        self.takers = self._batch_takers(build)
        self._copies = build.copies_of(self.updates | self.checks)
        self.level: dict[str, int] = {}
        self.own: dict[str, int] = {}

    def find_levels(self) -> None:
        """Sets `level` and `own`."""
        self._find_lowest({})
        self._find_lowest(self._latest())

    def _has(
        self,
        node: node_def_pb2.NodeDef,
        is_wanted: Callable[[node_def_pb2.NodeDef], bool],
    ) -> bool:
        """Whether a node, or one in a function that it calls, is wanted."""
        operation = record(node.op)
        if not operation.bodies and Trait.CALLS not in operation.traits:
            return is_wanted(node)
        return any(
            self._has(inner, is_wanted)
            for value in node.attr.values()
            for called in functions_in(value)
            if called.name in self._functions
            for inner in self._functions[called.name].node_def
        )

    def _batch_takers(self, build: Build) -> set[str]:
        """Returns names of the nodes that take the batch.

        Not those that assignments which need no batch wait for: they only see
        that it is there, and has equal numbers of rows. The node that notes
        when a worker starts to compute is one, too.
        """
        captured = {reference for _, reference in build.captures.values()}
        batch = set(build.writer.inputs) - captured if not build.parent else ()
        before = self._with_ancestors(build.starts)
        return {
            name
            for name, node in self.nodes.items()
            if name not in before
            and not set(batch).isdisjoint(node.input)
            or node.op == "Timestamp"
            and not set(build.starts).isdisjoint(self.needs[name])
        }

    def _with_ancestors(self, names: Iterable[str]) -> set[str]:
        found: set[str] = set()
        waiting = [name for name in names if name in self.nodes]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.needs[name]
        return found

    def _find_lowest(self, least: dict[str, int]) -> None:
        """Finds the lowest levels, with all copies of a node on one level.

        Args:
            least: Lowest level of some nodes.
        """
        least = dict(least)
        while True:
            for name in self.nodes:
                self._set_level(name, least.get(name, 0))
            raised = False
            for copies in self._copies:
                highest = max(self.own[name] for name in copies)
                for name in copies:
                    raised |= self.own[name] < highest
                    least[name] = highest
            if not raised:
                return

    def _set_level(self, name: str, least: int) -> None:
        is_update, level = name in self.updates, least
        for source in self.needs[name]:
            behind = source in self.updates and not is_update
            level = max(level, self.level[source] + behind)
        if is_update:
            level += level % 2
        elif name in self.takers:
            level += 1 - level % 2
        elif name in self.checks:
            level = max(_FIRST_CHECK, level + 1 - level % 2)
        self.level[name] = level
        if is_update or name in self.checks:
            self.own[name] = level

    def _latest(self) -> dict[str, int]:
        """Returns the highest level of each check: before what needs it."""
        last = max(self.own[name] for name in self.updates) + 2
        before = dict.fromkeys(self.nodes, last)
        for name in reversed(self.nodes):
            own = before[name]
            if name in self.updates:
                own = self.own[name]
            for source in self.needs[name]:
                before[source] = min(before[source], own)
        latest = {}
        for copies in self._copies:
            if copies[0] in self.checks:
                highest = min(before[name] for name in copies) - 1
                latest.update(dict.fromkeys(copies, highest))
        return latest


class _Barriers:
    """Writes the barriers of a function."""

    def __init__(self, build: Build, step: _Step) -> None:
        self._build = build
        self._step = step
        self._late = _late(build, step)
        # What the barriers so far wait for, and the last one.
        self._done: set[str] = set()
        self._last: list[str] = []
        # Not in loops and branches: their collectives have an order already.
        self._agrees = build.parent is None

    def write(self, level: int) -> None:
        """Writes the barrier in front of a level, if anything waits for it."""
        step, late = self._step, self._late
        if level == 0 and step.takers:
            return  # Nothing that has run by then takes the batch.
        if level % 2:
            waiting = {n for n in step.nodes if self._follows(n, level)}
            done = {n for n in step.updates if step.level[n] < level}
        else:
            waiting = {n for n in step.updates if step.level[n] == level}
            done = {
                name
                for name, own in step.level.items()
                if own <= level
                and name not in step.updates
                and name not in late
                and step.nodes[name].op != "Const"
            }
            computing = {name for name, own in late.items() if own == level}
            waiting |= {
                name
                for name in computing
                if not computing.issuperset(step.needs[name])
            }
        new = done - self._done
        if new and waiting:
            self._barrier(new)
            self._done |= new
        if self._last:
            self._wait(waiting, self._last[0])

    def _follows(self, name: str, level: int) -> bool:
        """Whether a node waits for all assignments of the level before its own."""
        step = self._step
        if step.level[name] != level or name in self._late:
            return False
        return (
            name in step.checks
            or name in step.takers
            or any(
                source in step.updates and step.level[source] == level - 1
                for source in step.needs[name]
            )
        )

    def _barrier(self, done: Collection[str]) -> None:
        """Writes a node that waits for some nodes, and the barrier before."""
        build, step = self._build, self._step
        used = {source for name in done for source in step.needs[name]}
        ends = collections.defaultdict(list)
        for name in step.nodes:
            if name in done and name not in used:
                ends[step.nodes[name].device].append(name)
        host = build.mesh.host
        computed = list(self._last)
        for device, names in ends.items():
            build.writer.op("NoOp", [], device, "computed", names)
            computed.append(build.writer.last)
        build.writer.op("NoOp", [], host, "all_computed", computed)
        last = build.writer.last
        if self._agrees:
            # After the collectives that it waits for, and before those of
            # values that are read after an assignment.
            build.last_collective = {}
            last = build.replicas.agree_to_assign(build, last)
        self._last = [last]

    def _wait(self, waiting: Collection[str], last: str) -> None:
        """Makes some nodes wait for a barrier."""
        build, step = self._build, self._step
        go: dict[str, str] = {}
        for name in step.nodes:
            if name not in waiting:
                continue
            device = step.nodes[name].device
            if device not in go:
                build.writer.op("NoOp", [], device, "go_on", [last])
                go[device] = build.writer.last
            step.nodes[name].input.append(f"^{go[device]}")


def _changes_variables(node: node_def_pb2.NodeDef) -> bool:
    traits = record(node.op).traits
    return Trait.COPIED in traits and Trait.READ_ONLY not in traits


def _can_fail(node: node_def_pb2.NodeDef) -> bool:
    return not CAN_FAIL.isdisjoint(record(node.op).traits)


def _late(build: Build, step: _Step) -> dict[str, int]:
    """Returns nodes that only compute assigned values, and the assignments' level.

    They run behind the barrier: before it, all new values would be in memory at
    once. XLA compiles them together; there they are before it.
    """
    late: dict[str, int] = {}
    if build.program.form.is_compiled:
        return late
    takers = collections.defaultdict(list)
    for name, needs in step.needs.items():
        for source in needs:
            takers[source].append(name)
    returned = set(map(node_name, build.outputs))
    for name in reversed(step.nodes):
        node = step.nodes[name]
        if (
            not takers[name]
            or name in returned
            or name in build.writer.on_host
            or not _is_late(node)
        ):
            continue
        levels = {
            step.own[taker] if taker in step.updates else late.get(taker)
            for taker in takers[name]
        }
        level = levels.pop()
        if not levels and level is not None:
            late[name] = level
    return late


def _is_late(node: node_def_pb2.NodeDef) -> bool:
    if node.op in _LATE:
        return True
    traits = record(node.op).traits
    return (
        Trait.ELEMENTWISE in traits
        and Trait.CHECKS not in traits
        # Integers can be divided by zero.
        and "T" in node.attr
        and tf.as_dtype(node.attr["T"].type).is_floating
    )
