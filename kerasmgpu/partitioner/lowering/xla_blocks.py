"""Cuts XLA clusters where they repeat: equal blocks are one compiled function.

The layers of a network, heads, or the steps of an unrolled loop follow one
another in a cluster as equal stretches of nodes. XLA's time grows faster than
the number of nodes, so it compiles one of equal blocks, and not all together.
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

FEWEST = 96
"""Nodes of the smallest block. A call takes as long as several nodes."""

MOST_WHOLE = 6000
"""Most nodes of a cluster that stays whole, times the number of devices, each of
which translates it. With blocks the step of one device was a fifth slower: what
they return to each other is written to memory."""

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


class Cutter:
    """Cuts clusters where they repeat.

    Args:
        nodes: All nodes, sorted topologically.
        values: Values by reference, as far as they are known.
        num_devices: Number of devices that have a cluster each.
    """

    def __init__(
        self, nodes: Nodes, values: Mapping[str, Value], num_devices: int
    ) -> None:
        self._nodes = nodes
        self._values = values
        self._num_devices = num_devices
        self._numbers: dict[tuple[object, ...], int] = {}
        self._cuts: dict[tuple[object, ...], list[list[int]]] = {}

    def parts(self, names: Sequence[str]) -> list[list[str]]:
        """Returns the names of each part of a cluster, in order.

        Parts are stretches of the cluster in an order in which a node is behind
        what it takes, so no path leads back from a part to an earlier one.

        Args:
            names: Those of the cluster, in the order of `nodes`.
        """
        if len(names) * self._num_devices <= MOST_WHOLE:
            return [list(names)]
        cluster = self._cluster(names)
        content = tuple(cluster.codes), tuple(cluster.sources)
        if content not in self._cuts:  # As those of other devices.
            self._cuts[content] = _cut(cluster)
        return [[names[n] for n in part] for part in self._cuts[content]]

    def _cluster(self, names: Sequence[str]) -> "_Cluster":
        position = {name: number for number, name in enumerate(names)}
        codes, sources = [], []
        for name in names:
            code, taken = _code(self._nodes, name, self._values)
            codes.append(self._numbers.setdefault(code, len(self._numbers)))
            sources.append(tuple(map(position.get, taken)))
        return _Cluster(codes, sources)


def _cut(cluster: "_Cluster") -> list[list[int]]:
    """Returns the numbers of the nodes of each part."""
    whole = list(range(len(cluster.codes)))
    # Gradients of heads side by side are made in layers across all heads.
    orders = whole, cluster.by_chain()
    cuts = [_cut_in_order(cluster, order) for order in orders]
    cost, parts = min(cuts, key=lambda one: one[0])
    return parts if cost < len(whole) else [whole]


def _cut_in_order(
    cluster: "_Cluster", order: Sequence[int]
) -> tuple[int, list[list[int]]]:
    """Returns what a cut costs, and the numbers of the nodes of its parts.

    A cluster that is not cut costs its nodes. Of one that is cut, different nodes
    are compiled, and what parts return to others is written to memory.
    """
    cluster = cluster.sorted(order)
    found = list(_blocks(cluster, 0, len(order)))
    starts = {0, len(order)}
    for one in found:
        starts.update(range(one.start, one.stop + 1, one.length))
    bounds = list(itertools.pairwise(sorted(starts)))
    returned = sum(
        cluster.last[one] >= stop
        for start, stop in bounds
        for one in range(start, stop)
    )
    cost = len(order) - sum(one.saved for one in found) + returned
    return cost, [list(order[start:stop]) for start, stop in bounds]


class _Cluster:
    """What a cut needs to know of a cluster's nodes.

    Attributes:
        codes: For each node an integer, which is the same for nodes that differ
            only in what they take.
        sources: For each node the positions of the nodes whose results it takes,
            `None` for those of other clusters.
        last: For each node the position of the last one that takes its results,
            its own if none does.
    """

    def __init__(
        self, codes: Sequence[int], sources: Sequence[tuple[int | None, ...]]
    ) -> None:
        self.codes = codes
        self.sources = sources
        self.last = list(range(len(codes)))
        for number, taken in enumerate(sources):
            for one in taken:
                if one is not None:
                    self.last[one] = number

    def sorted(self, order: Sequence[int]) -> "_Cluster":
        """Returns the same nodes in another order of their numbers."""
        place: dict[int | None, int] = {}
        place.update((number, new) for new, number in enumerate(order))
        return _Cluster(
            [self.codes[number] for number in order],
            [tuple(map(place.get, self.sources[number])) for number in order],
        )

    def by_chain(self) -> list[int]:
        """Returns an order in which nodes are soon behind what they take."""
        ordered: dict[int, None] = {}
        for number, last in enumerate(self.last):
            stack = [number] if last == number else []
            while stack:  # Depth first.
                missing = [
                    one
                    for one in self.sources[stack[-1]]
                    if one is not None and one not in ordered
                ]
                if missing:
                    stack.append(missing[0])
                else:
                    ordered[stack.pop()] = None
        return list(ordered)


def _code(
    nodes: Nodes, name: str, values: Mapping[str, Value]
) -> tuple[tuple[object, ...], list[str]]:
    """Returns what nodes that compute the same share, and what this one takes."""
    node = nodes[name]
    definition = graphs.op_definition(node.op)
    attributes = [
        node.attr[one.name].SerializeToString(deterministic=True)
        for one in definition.attr
        if one.name in node.attr
    ]
    constants, taken = [], []
    for source in map(node_name, node.input):
        other = nodes.get(source)
        if other is not None and other.op == "Const":
            value = other.attr["value"]
            constants.append(value.SerializeToString(deterministic=True))
        else:
            taken.append(source)
    shapes = [
        values[reference].tensor.static if reference in values else None
        for output in definition.output_arg
        for reference in [f"{name}:{output.name}:0"]
    ]
    code = node.op, tuple(attributes), tuple(constants), str(shapes)
    return code, taken


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
                found = _cut_periods(cluster, first, end + period, period)
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


def _cut_periods(
    cluster: _Cluster, start: int, stop: int, period: int
) -> Blocks | None:
    """Returns blocks of a periodic stretch, or `None` if none are alike.

    A block has as many periods as make it large enough. The first block begins
    where the most blocks fit; of these places, where the fewest results cross.
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
    crossings = _crossings(cluster, start, period)
    first = max(
        range(start, min(start + period, stop - 2 * length + 1)),
        key=lambda one: (
            (stop - one) // length,
            -crossings[one - start],
            -one,
        ),
    )
    number = (stop - first) // length
    contents = {
        _content(cluster, first + length * one, length) for one in range(number)
    }
    saved = (number - len(contents)) * length
    return Blocks(first, length, number, saved) if saved else None


def _crossings(cluster: _Cluster, start: int, period: int) -> list[int]:
    """Returns how many results the next period takes across each cut.

    Args:
        start: The first cut, of as many as nodes in a period.
    """
    changes = [0] * (period + 1)
    stop = start + period
    for one in range(max(start - period, 0), min(stop, len(cluster.last))):
        last = cluster.last[one]
        first_cut = max(one + 1, last - period + 1, start)
        behind = min(last, one + period, stop - 1) + 1
        if first_cut < behind:
            changes[first_cut - start] += 1
            changes[behind - start] -= 1
    return list(itertools.accumulate(changes))


def _content(cluster: _Cluster, start: int, length: int) -> tuple[object, ...]:
    """Returns what is the same of blocks whose functions are equal."""
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
