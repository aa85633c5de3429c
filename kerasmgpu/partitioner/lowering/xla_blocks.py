"""Cuts XLA clusters where they repeat: equal blocks are one compiled function.

The layers of a network, heads, or the steps of an unrolled loop follow one
another in a cluster as equal stretches of nodes. What takes XLA's time grows
faster than a cluster, so a block is compiled instead of all of its copies.
"""

import collections
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.lowering.writing import Nodes
from kerasmgpu.partitioner.step import graph as graphs
from kerasmgpu.partitioner.step.definitions import node_name

FEWEST = 48
"""Nodes of the smallest block: a call takes as long as some of them."""

_WINDOW = 8
"""Nodes in a row by which repetitions are found."""

_MOST_PERIODS = 16
"""Periods that are tried, the most frequent ones first."""


class Blocks(NamedTuple):
    """Blocks of equal length, one behind the other.

    Attributes:
        start: Position of the first node.
        length: Number of nodes of a block.
        number: Number of blocks.
        saved: Number of nodes in blocks that are like an earlier one.
    """

    start: int
    length: int
    number: int
    saved: int

    @property
    def stop(self) -> int:
        """Position behind the last node."""
        return self.start + self.length * self.number


def parts(
    nodes: Nodes, names: Sequence[str], values: Mapping[str, Value]
) -> list[list[str]]:
    """Cuts a cluster where it repeats.

    Parts are stretches of the cluster in an order in which a node is behind what
    it takes, so no path leads back from a part to an earlier one.

    Args:
        nodes: All nodes, sorted topologically.
        names: Those of the cluster, in this order.
        values: Values by reference, as far as they are known.

    Returns:
        The names of each part, in order; one part where a cut doesn't pay.
    """
    whole = [list(names)]
    if len(names) < 2 * FEWEST:
        return whole
    # Gradients of heads side by side are made in layers across all heads.
    orders = names, _by_chain(nodes, names)
    cuts = [_cut_in_order(nodes, order, values) for order in orders]
    cost, made = min(cuts, key=lambda one: one[0])
    return made if cost < len(names) else whole


def _cut_in_order(
    nodes: Nodes, names: Sequence[str], values: Mapping[str, Value]
) -> tuple[int, list[list[str]]]:
    """Returns what a cut costs, and its parts.

    A cluster that is not cut costs its nodes. Of one that is cut, different nodes
    are compiled, and what parts return to others is written to memory.
    """
    cluster = _Cluster(nodes, names, values)
    found = list(_blocks(cluster, 0, len(names)))
    starts = {0, len(names)}
    for one in found:
        starts.update(range(one.start, one.stop + 1, one.length))
    bounds = list(itertools.pairwise(sorted(starts)))
    returned = sum(
        cluster.last[one] >= stop
        for start, stop in bounds
        for one in range(start, stop)
    )
    cost = len(names) - sum(one.saved for one in found) + returned
    return cost, [list(names[start:stop]) for start, stop in bounds]


def _by_chain(nodes: Nodes, names: Sequence[str]) -> list[str]:
    """Sorts nodes so that each is soon behind what it takes: depth first."""
    sources = {name: list(map(node_name, nodes[name].input)) for name in names}
    taken = set(itertools.chain(*sources.values()))
    ordered: dict[str, None] = {}
    for name in names:
        stack = [] if name in taken else [name]
        while stack:
            missing = [
                one
                for one in sources[stack[-1]]
                if one in sources and one not in ordered
            ]
            if missing:
                stack.append(missing[0])
            else:
                ordered[stack.pop()] = None
    return list(ordered)


class _Cluster:
    """What a cut needs to know of a cluster's nodes.

    Attributes:
        codes: For each node an integer, which is the same for nodes that differ
            in what they take only.
        sources: For each node the positions of the nodes whose results it takes,
            `None` for those of other clusters.
        last: For each node the position of the last one that takes its results,
            its own if none does.
    """

    def __init__(
        self, nodes: Nodes, names: Sequence[str], values: Mapping[str, Value]
    ) -> None:
        position = {name: number for number, name in enumerate(names)}
        numbers: dict[tuple[object, ...], int] = {}
        self.codes: list[int] = []
        self.sources: list[list[int | None]] = []
        self.last = list(range(len(names)))
        for number, name in enumerate(names):
            node = nodes[name]
            sources = [
                source
                for source in map(node_name, node.input)
                if source not in nodes or nodes[source].op != "Const"
            ]
            self.sources.append([position.get(one) for one in sources])
            for one in self.sources[-1]:
                if one is not None:
                    self.last[one] = number
            code = _code(nodes, name, values)
            self.codes.append(numbers.setdefault(code, len(numbers)))


def _code(
    nodes: Nodes, name: str, values: Mapping[str, Value]
) -> tuple[object, ...]:
    """Returns what nodes that compute the same have in common."""
    node = nodes[name]
    definition = graphs.op_definition(node.op)
    attributes = [
        node.attr[one.name].SerializeToString(deterministic=True)
        for one in definition.attr
        if one.name in node.attr
    ]
    constants = [
        nodes[source].attr["value"].SerializeToString(deterministic=True)
        for source in map(node_name, node.input)
        if source in nodes and nodes[source].op == "Const"
    ]
    shapes = [
        values[reference].tensor.static if reference in values else None
        for output in definition.output_arg
        for reference in [f"{name}:{output.name}:0"]
    ]
    return (
        node.op,
        tuple(attributes),
        tuple(constants),
        tuple(map(str, shapes)),
    )


def _blocks(cluster: _Cluster, start: int, stop: int) -> Iterator[Blocks]:
    """Yields the blocks of a stretch: the best ones, then those beside them."""
    if stop - start < 2 * FEWEST:
        return
    best = max(
        _candidates(cluster, start, stop),
        key=lambda one: (one.saved, -one.length),
        default=None,
    )
    if best is None:
        return
    yield from _blocks(cluster, start, best.start)
    yield best
    yield from _blocks(cluster, best.stop, stop)


def _candidates(cluster: _Cluster, start: int, stop: int) -> Iterator[Blocks]:
    codes = cluster.codes
    for period in _periods(codes[start:stop]):
        first = start
        while first + period < stop:
            end = first
            while end + period < stop and codes[end] == codes[end + period]:
                end += 1
            if end - first >= period:
                found = _cut(cluster, first, end + period, period)
                if found is not None:
                    yield found
            first = end + 1


def _periods(codes: Sequence[int]) -> list[int]:
    """Returns the most frequent distances of equal stretches."""
    distances: collections.Counter[int] = collections.Counter()
    before: dict[tuple[int, ...], int] = {}
    for number in range(len(codes) - _WINDOW + 1):
        window = tuple(codes[number : number + _WINDOW])
        if window in before:
            distances[number - before[window]] += 1
        before[window] = number
    return [one for one, _ in distances.most_common(_MOST_PERIODS)]


def _cut(
    cluster: _Cluster, start: int, stop: int, period: int
) -> Blocks | None:
    """Returns blocks of a periodic stretch, or `None` if none are alike.

    A block is of as many periods as it needs to be large enough. They begin
    where most of them fit; of these places, where the fewest results cross.
    """
    count = (stop - start) // period
    periods = math.ceil(FEWEST / period)
    if count < 2 * periods:
        return None
    # Few periods are left over.
    periods = min(
        range(periods, min(2 * periods, count // 2) + 1),
        key=lambda one: (count % one, one),
    )
    length = periods * period
    first = max(
        range(start, min(start + period, stop - 2 * length + 1)),
        key=lambda one: (
            (stop - one) // length,
            -_crossing(cluster, one, period),
            -one,
        ),
    )
    number = (stop - first) // length
    contents = {
        _content(cluster, first + length * one, length) for one in range(number)
    }
    saved = (number - len(contents)) * length
    return Blocks(first, length, number, saved) if saved else None


def _crossing(cluster: _Cluster, cut: int, period: int) -> int:
    """Returns the number of results that the next period takes across a cut."""
    return sum(
        cut <= cluster.last[one] < cut + period
        for one in range(max(cut - period, 0), cut)
    )


def _content(cluster: _Cluster, start: int, length: int) -> tuple[object, ...]:
    """Returns what two blocks that are one function have in common."""
    stop = start + length

    def source(one: int | None) -> int | None:
        return one - start if one is not None and start <= one < stop else None

    return tuple(
        (
            cluster.codes[number],
            tuple(map(source, cluster.sources[number])),
            cluster.last[number] >= stop,
        )
        for number in range(start, stop)
    )
