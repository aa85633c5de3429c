"""Computes values of the forward pass again, instead of keeping them.

The backward pass reads copies of the nodes that computed them. A copy waits for
the gradient that is computed just before it is needed; without that it would run
at once, and keep in memory what it is there to free.
"""

import dataclasses
import math
import os
import re
from collections.abc import Collection, Mapping

from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor, new_node
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.partitioner.step.simplification import ordered

Time = tuple[float, int, int]
"""When a node runs: position in the graph, whether it is that node itself, and
position of the node that it copies."""


def is_backward_name(name: str) -> bool:
    """Whether a node's name is one of the backward pass."""
    return "gradient_tape" in name or "gradients/" in name


_AGAIN = "/again"
"""End of the names of copies; those of inner regions have a number behind it."""


def is_copy(node: Node) -> bool:
    """Whether a node computes a value of the forward pass again."""
    return (
        re.fullmatch(f"gradient_tape/.*{_AGAIN}(_\\d+)?", node.name) is not None
    )


def values_read(node: Node) -> list[Tensor]:
    """Returns the inputs of a node of which it needs more than the shape."""
    if Trait.OF_SHAPES in node.traits:
        return []
    return node.inputs


class Passes:
    """Tells the forward pass of a step from all that is computed of gradients.

    Attributes:
        forward: Nodes that no gradient goes into.
        saved: Tensors of the forward pass that other nodes read, and these
            nodes, in the order of the graph.
        position: Maps each node to its position in the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.position = {node: n for n, node in enumerate(graph.nodes)}
        self.forward: set[Node] = set()
        self.saved: dict[Tensor, list[Node]] = {}
        self._readers: dict[Node, list[Node]] = {}
        # Position of the last node of the forward pass that a node needs.
        last: dict[Node, int] = {}
        for n, node in enumerate(graph.nodes):
            needs = [one for one in node.needs if one.type != "Input"]
            last[node] = max((last[one] for one in needs), default=-1)
            for one in set(needs):
                self._readers.setdefault(one, []).append(node)
            if is_backward_name(node.name) or not self.forward.issuperset(
                needs
            ):
                for tensor in dict.fromkeys(values_read(node)):
                    if tensor.node in self.forward:
                        self.saved.setdefault(tensor, []).append(node)
            else:
                self.forward.add(node)
                last[node] = n
        # An update reads values that depend on no batch, such as its rate.
        ends = [
            last[tensor.node]
            for tensor, readers in self.saved.items()
            if any(is_backward_name(node.name) for node in readers)
        ]
        end = max(ends, default=math.inf)
        self._driven = {
            node
            for node in graph.nodes
            if node not in self.forward and last[node] >= end
        }
        self._due: dict[Node, float] = {}
        for node in reversed(graph.nodes):
            self._due[node] = self.position[node]
            if node not in self.forward and node not in self._driven:
                after = self._readers.get(node, ())
                self._due[node] = min(
                    (self._due[one] for one in after), default=math.inf
                )
        self._nodes = graph.nodes

    def due(self, node: Node) -> float:
        """Returns the position at which a node outside the forward pass is due.

        That is its own or, if no gradient goes into it, that of the first node
        that combines it with one: `2 * x` in the derivative of `x**2`.
        """
        return self._due[node]

    def time(self, node: Node) -> Time:
        """Returns when a node of the graph runs."""
        position = self.position[node]
        if node in self.forward or node in self._driven:
            return position, 1, 0
        return self._due[node], 0, position

    def is_early(self, node: Node) -> bool:
        """Whether a node could run long before it is due."""
        return not (node in self.forward or node in self._driven) and any(
            one in self.forward for one in node.needs
        )

    def let_wait(self, node: Node, time: Time) -> None:
        """Lets a node, or the copy of one, wait until it is due."""
        gradient = self.before(time[0])
        if gradient is not None and self.time(gradient) < time:
            node.controls.append(gradient)

    def before(self, due: float) -> Node | None:
        """Returns the node whose gradient goes into the one that is due.

        `None` if there is none, as at the end of the forward pass.
        """
        if math.isinf(due):
            return None
        needs = self._nodes[int(due)].needs
        driven = [node for node in needs if node in self._driven]
        return max(driven, key=self.position.__getitem__, default=None)


@dataclasses.dataclass(frozen=True)
class Again:
    """Nodes to run again.

    Attributes:
        names: Names of nodes of the forward pass.
        in_regions: Whether regions count (`Node.regions`); else all is one, with
            no tensor to keep.
    """

    names: frozenset[str]
    in_regions: bool = False


def copies(
    passes: Passes, levels: Mapping[Tensor, int]
) -> dict[tuple[Node, int], Time]:
    """Returns when the copies of nodes run, in the order of time.

    Args:
        levels: See `levels_of`. Nodes that the backward pass doesn't need are
            left out of the result.

    Returns:
        A dictionary of pairs of a node and the level of the copy.
    """
    due: dict[tuple[Node, int], float] = {}
    for tensor, readers in passes.saved.items():
        if level := levels.get(tensor):
            for one in readers:
                _lower(due, (tensor.node, level), passes.due(one))
    again: dict[Node, int] = {}
    for tensor, level in levels.items():
        again[tensor.node] = max(level, again.get(tensor.node, 0))
    found: dict[tuple[Node, int], Time] = {}
    for node in sorted(again, key=passes.position.__getitem__, reverse=True):
        for level in range(again[node], 0, -1):
            if (node, level) not in due:
                continue
            moment = due[node, level]
            found[node, level] = moment, 0, passes.position[node]
            for tensor in node.inputs:
                if own := min(level, levels.get(tensor, 0)):
                    _lower(due, (tensor.node, own), moment)
    return dict(sorted(found.items(), key=lambda item: item[1]))


def levels_of(
    passes: Passes, again: Collection[Node], in_regions: bool
) -> dict[Tensor, int]:
    """Returns how often each output of nodes is computed again.

    At level 0 it is kept, and left out. A copy of level 2 runs while the inner one
    of two regions is computed again; it reads copies of level 1 of what the outer
    region has for it. A tensor that an operation outside of its region reads has
    the level of the region that both are in, as a checkpoint.

    Args:
        again: Nodes of the forward pass.
        in_regions: See `Again`.
    """
    if not in_regions:
        return {tensor: 1 for node in again for tensor in node.outputs}
    levels = {t: len(node.regions) for node in again for t in node.outputs}
    for reader in passes.forward:
        for tensor in values_read(reader):
            if tensor in levels:
                both = os.path.commonprefix(
                    [tensor.node.regions, reader.regions]
                )
                levels[tensor] = min(levels[tensor], len(both))
    return {tensor: level for tensor, level in levels.items() if level}


def _lower(
    due: dict[tuple[Node, int], float], copy: tuple[Node, int], value: float
) -> None:
    due[copy] = min(due.get(copy, math.inf), value)


def rewrite(graph: Graph, again: Again) -> None:
    """Lets the backward pass read copies of nodes; changes the graph."""
    passes = Passes(graph)
    nodes = [node for node in graph.nodes if node.name in again.names]
    levels = levels_of(passes, nodes, again.in_regions)
    made: dict[tuple[Tensor, int], Tensor] = {}

    def version(tensor: Tensor, level: int) -> Tensor:
        own = min(level, levels.get(tensor, 0))
        return made.get((tensor, own), tensor)

    for (node, level), time in copies(passes, levels).items():
        suffix = _AGAIN if level == 1 else f"{_AGAIN}_{level}"
        copy = new_node(
            node.type, f"gradient_tape/{node.name}{suffix}", node.definition
        )
        copy.inputs = [version(tensor, level) for tensor in node.inputs]
        passes.let_wait(copy, time)
        for tensor in node.outputs:
            twin = Tensor(copy, tensor.index, tensor.dtype, tensor.static)
            copy.outputs.append(twin)
            made[tensor, level] = twin
        graph.nodes.append(copy)
    readers = {one: None for some in passes.saved.values() for one in some}
    for reader in readers:
        reader.inputs = [
            version(one, levels.get(one, 0)) for one in reader.inputs
        ]
    for node in graph.nodes[: len(passes.position)]:
        if passes.is_early(node):
            passes.let_wait(node, passes.time(node))
    graph.nodes = ordered(graph)
