"""Rewrites optimizer updates so that they have fewer operations.

Keras writes an update for each variable by itself: some twenty small
operations, the same ones each time. Three rewrites of the one-device graph,
which change no bit of any result:

* `with_forwarded_stores`: a read after an assignment takes the assigned value,
  and `assign_add` becomes an addition and an assignment, so that an update is a
  plain function of gradients and old values;
* `without_dead_stores`: assignments that are overwritten before they are read
  are removed;
* `stacked`: the same function of several variables of one shape becomes one
  function of their stack.
"""

import collections
from collections.abc import Collection, Iterable
from typing import Any, TypeAlias

import tensorflow as tf

from kerasmgpu.partitioner.step.definitions import set_attributes
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor, new_node
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.partitioner.step.simplification import ordered, reached
from kerasmgpu.partitioner.step.sizes import StaticShape

LARGEST = 1 << 16
"""Most bytes of a variable that is stacked, since stacking copies it."""

Consumers: TypeAlias = dict[Node, list[Node]]

_SUMS = {"AssignAddVariableOp": "AddV2", "AssignSubVariableOp": "Sub"}


# Store-to-load forwarding ------------------------------------------------------


def with_forwarded_stores(graph: Graph) -> Graph:
    """Forwards stores to loads: a read after an assignment yields its value.

    The order of reads and assignments of a variable is known from TensorFlow's
    automatic control dependencies. `assign_add` and `assign_sub` become
    assignments. The graph is changed and returned.
    """
    same, nodes = {}, []
    for node in graph.nodes:
        node.inputs = [same.get(tensor, tensor) for tensor in node.inputs]
        if _reads(node):
            value = _assigned_before(node)
            if value is not None:
                same[node.outputs[0]] = value
        elif node.type in _SUMS:
            nodes += _as_assignment(node, same)
        nodes.append(node)
    graph.nodes = nodes
    graph.outputs = [same.get(tensor, tensor) for tensor in graph.outputs]
    return graph


def _reads(node: Node) -> bool:
    return Trait.READS in node.traits


def _assigns(node: Node) -> bool:
    return Trait.ASSIGNS in node.traits


def _assigned_before(read: Node) -> Tensor | None:
    """Returns the tensor last assigned before a read; `None` if unknown."""
    handle = read.inputs[0]
    before = [node for node in read.controls if handle in node.inputs]
    if len(before) != 1 or not _assigns(before[0]):
        return None
    value = before[0].inputs[1]
    return value if value.dtype == read.outputs[0].dtype else None


def _as_assignment(node: Node, same: dict[Tensor, Tensor]) -> list[Node]:
    """Turns `assign_add` or `assign_sub` into an assignment; returns new nodes.

    Args:
        node: The node, which is changed.
        same: Maps tensors to their replacements. If a read is created, its
            output is added.
    """
    handle, value = node.inputs
    read = _read_before(node)
    made = []
    if read is None:
        name = f"{node.name}/Read"
        read = _new("ReadVariableOp", name, [handle], dtype=value.dtype)
        read.controls = list(node.controls)
        old = _output(read, value.static, value.dtype)
        made.append(read)
        same[old] = _assigned_before(read) or old
    old = read.outputs[0]
    type = _SUMS[node.type]
    inputs = [same.get(old, old), value]
    total = _new(type, f"{node.name}/{type}", inputs, T=value.dtype)
    made.append(total)
    node.type = node.definition.op = "AssignVariableOp"
    node.inputs = [handle, _output(total, value.static, value.dtype)]
    node.controls = list(dict.fromkeys([*node.controls, read]))
    return made


def _read_before(node: Node) -> Node | None:
    """Returns a read of the value that `node` updates; `None` without one."""
    handle = node.inputs[0]
    about = [other for other in node.controls if handle in other.inputs]
    writes = {other for other in about if not _reads(other)}
    for other in about:
        if _reads(other) and writes <= set(other.controls):
            return other
    return None


# Dead stores -------------------------------------------------------------------


def without_dead_stores(graph: Graph) -> Graph:
    """Removes dead stores and unused reads; changes and returns the graph."""
    needed_by = _consumers(graph)
    outputs = set(graph.outputs)
    last, removed = {}, {}
    for node in graph.nodes:
        if _reads(node) and not (
            outputs.intersection(node.outputs)
            or any(node.outputs[0] in other.inputs for other in needed_by[node])
        ):
            removed[node] = node.controls  # An unused read.
            continue
        is_assignment = _assigns(node)
        for tensor in node.inputs:
            before = last.pop(tensor, None)
            if is_assignment and before in _controls(node, removed):
                removed[before] = before.controls
        if is_assignment:
            last[node.inputs[0]] = node
    graph.nodes = [node for node in graph.nodes if node not in removed]
    graph.effects = [node for node in graph.effects if node not in removed]
    for node in graph.nodes:
        node.controls = _controls(node, removed)
    return graph


def _controls(node: Node, removed: dict[Node, list[Node]]) -> list[Node]:
    """Returns a node's controls; those of a removed node replace it."""
    found, waiting = {}, list(reversed(node.controls))
    while waiting:
        control = waiting.pop()
        if control in removed:
            waiting += reversed(removed[control])
        else:
            found[control] = None
    return list(found)


# The same function of several variables ----------------------------------------


def stacked(graph: Graph, sharded: Collection[Tensor] = ()) -> Graph:
    """Stacks equal updates of variables of one shape into one update.

    Args:
        graph: The graph, which is changed and returned.
        sharded: Handles of variables that are not stacked.
    """
    lanes = collections.defaultdict(list)
    for lane in _lanes(graph, sharded):
        if lane.members:
            lanes[lane.code()].append(lane)
    needed_by = _consumers(graph)
    changed = False
    for alike in lanes.values():
        if len(alike) > 1 and not _depend_on_each_other(alike, needed_by):
            graph.nodes += _stack(alike, graph, needed_by)
            changed = True
    if changed:
        graph.nodes = ordered(graph)
    return graph


class Lane:
    """The update of one variable, or of several that share nodes.

    Attributes:
        members: Elementwise nodes that compute the new values, in order.
        assignments: Nodes that assign them.
        leaves: Inputs of the members from outside, except scalars; empty until
            `code` is called.
    """

    def __init__(self) -> None:
        self.members: list[Node] = []
        self.assignments: list[Node] = []
        self.leaves: list[Tensor] = []

    def code(self) -> tuple:
        """Returns a key of the function that is computed; sets `leaves`."""
        place = {node: number for number, node in enumerate(self.members)}
        leaf = {}

        def of(tensor: Tensor) -> tuple[str, int]:
            if tensor.node in place:
                return "member", place[tensor.node]
            if tensor.static == ():
                return "shared", id(tensor)
            return "leaf", leaf.setdefault(tensor, len(leaf))

        code = [
            (
                node.definition.SerializeToString(deterministic=True),
                node.outputs[0].static,
                node.outputs[0].dtype,
                *map(of, node.inputs),
            )
            for node in self.members
        ]
        code += [(of(node.inputs[1]),) for node in self.assignments]
        self.leaves = list(leaf)
        return tuple(code)


def _lanes(graph: Graph, sharded: Collection[Tensor]) -> Iterable[Lane]:
    """Returns lanes of small variables; updates that share nodes share one."""
    index = {node: number for number, node in enumerate(graph.nodes)}
    lane_of = {}
    for node in graph.nodes:
        if not _assigns(node):
            continue
        members = _members(node.inputs[1])
        if members is None or node.inputs[0] in sharded:
            continue
        lane = Lane()
        lane.assignments.append(node)
        for other in {lane_of[m] for m in members if m in lane_of}:
            lane.assignments += other.assignments
            members |= set(other.members)
        lane.members = sorted(members, key=index.__getitem__)
        lane.assignments.sort(key=index.__getitem__)
        lane_of.update(dict.fromkeys(lane.members, lane))
    return dict.fromkeys(lane_of.values())


def _members(value: Tensor) -> set[Node] | None:
    """Returns the elementwise nodes, all of one shape, that compute a value.

    Returns `None` if the value is a scalar, too large, or of unknown shape.
    """
    shape = value.static
    if not shape or value.num_bytes > LARGEST:
        return None

    def stackable(tensors: list[Tensor]) -> list[Node]:
        return [t.node for t in tensors if _may_stack(t.node, shape)]

    return reached(stackable([value]), lambda node: stackable(node.inputs))


def _may_stack(node: Node, shape: StaticShape) -> bool:
    return (
        Trait.ELEMENTWISE in node.traits
        and not node.controls
        and len(node.outputs) == 1
        and node.outputs[0].static == shape
        and all(tensor.static in (shape, ()) for tensor in node.inputs)
    )


def _depend_on_each_other(lanes: list[Lane], needed_by: Consumers) -> bool:
    """Whether an input of one lane depends on an output of another."""
    ahead = {node for lane in lanes for node in lane.members}
    followers = [other for node in ahead for other in needed_by[node]]
    after = reached(followers, needed_by.__getitem__)
    return any(
        tensor.node in after
        for lane in lanes
        for node in lane.members
        for tensor in node.inputs
        if tensor.node not in ahead
    )


def _consumers(graph: Graph) -> Consumers:
    needed_by = collections.defaultdict(list)
    for node in graph.nodes:
        for other in node.needs:
            needed_by[other].append(node)
    return needed_by


def _stack(lanes: list[Lane], graph: Graph, needed_by: Consumers) -> list[Node]:
    """Replaces equal lanes by one of stacked tensors; returns its nodes.

    Those of the lanes become dead.
    """
    first, count = lanes[0], len(lanes)
    made, now = [], {}
    for number, leaf in enumerate(first.leaves):
        pack = _new(
            "Pack",
            f"{leaf.node.name}/stack",
            [lane.leaves[number] for lane in lanes],
            N=count,
            T=leaf.dtype,
            axis=0,
        )
        now[leaf] = _output(pack, (count, *leaf.static), leaf.dtype)
        made.append(pack)
    for node in first.members:
        wide = new_node(node.type, f"{node.name}/stacked", node.definition)
        wide.inputs = [now.get(tensor, tensor) for tensor in node.inputs]
        (old,) = node.outputs
        now[old] = _output(wide, (count, *old.static), old.dtype)
        made.append(wide)
    parts = {}

    def part(tensor: Tensor, number: int) -> Tensor:
        """Returns lane `number`'s counterpart of a tensor of the first lane."""
        if tensor not in parts:
            unpack = _new(
                "Unpack",
                f"{tensor.node.name}/unstack",
                [now[tensor]],
                num=count,
                T=tensor.dtype,
                axis=0,
            )
            unpack.outputs = [
                Tensor(unpack, n, tensor.dtype, tensor.static)
                for n in range(count)
            ]
            made.append(unpack)
            parts[tensor] = unpack.outputs
        return parts[tensor][number]

    members = {node for lane in lanes for node in lane.members}
    for number, lane in enumerate(lanes):
        for node, alike in zip(lane.members, first.members):
            (tensor,), (of_first,) = node.outputs, alike.outputs
            for other in needed_by[node]:
                if other not in members:
                    other.inputs = [
                        part(of_first, number) if t is tensor else t
                        for t in other.inputs
                    ]
            graph.outputs = [
                part(of_first, number) if t is tensor else t
                for t in graph.outputs
            ]
    return made


def _new(type: str, name: str, inputs: list[Tensor], **attributes: Any) -> Node:
    node = new_node(type, name)
    node.inputs = inputs
    set_attributes(node.definition, attributes)
    return node


def _output(node: Node, shape: StaticShape | None, dtype: tf.DType) -> Tensor:
    """Creates the only output of a node, and returns it."""
    tensor = Tensor(node, 0, dtype, shape)
    node.outputs = [tensor]
    return tensor
