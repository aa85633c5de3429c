"""Searches a layout: for each variable, the axes that a mesh divides.

A descent over layouts, whose costs a function returns. Variables that repeat, such
as those of a transformer's blocks, move together, then every second one, then each
by itself.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

from kerasmgpu.division import AxesToShard, elements_of_part

UNDIVIDED_PER_BYTE = 16
"""Floating-point operations, of those that a layout leaves undivided, that cost as
much as a byte that is sent.

GPUs compute 100 to 1,000 in that time. With fewer, work is divided wherever that
sends bytes in proportion to it: that is what a mesh axis is for.
"""

FLOPS_PER_BYTE = 128
"""Floating-point operations that cost as much, where work is divided."""

DIVIDED = 1.2
"""Work counts as divided up to so many times an equal share of it."""

_FIRST_PER_BYTE = 32
"""As `FLOPS_PER_BYTE`, for the first descent: work is divided where that is cheap."""

_PRICES = tuple(float(4**power) for power in range(11))
"""Costs of a held byte that are tried, in turn, while a layout holds too much."""

_MOST_SWEEPS = 6
_MOST_SINGLES = 16
"""Most variables that also move one by one."""

_LARGE = 0.005
"""Share of all bytes from which on variables move before the others."""

Layout: TypeAlias = tuple[AxesToShard, ...]
"""For each variable, for each mesh axis, the axis that it divides, if any; then for
each input, where inputs can be divided."""

_Part: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Numbers of variables that move together, and their shape."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """FLOPs and bytes of a step under a layout.

    Attributes:
        flops: Float, floating-point operations of products on a device.
        share: Float, an equal share of these operations.
        sent: Float, bytes that a device sends, those over slower links counted
            as so many more.
        held: Integer, bytes of variables on the device that holds most.
    """

    flops: float
    share: float
    sent: float
    held: int

    def total(self, price: float = 1.0) -> float:
        """Returns the cost in sent bytes, if a held one costs `price` of them."""
        undivided = max(self.flops - DIVIDED * self.share, 0)
        work = undivided / UNDIVIDED_PER_BYTE + self.flops / FLOPS_PER_BYTE
        return work + self.sent + price * self.held

    def first(self) -> float:
        """Returns the cost that the search begins with."""
        return self.flops / _FIRST_PER_BYTE + self.sent + self.held


@dataclasses.dataclass(frozen=True)
class Group:
    """Variables that repeat, in the order of the model.

    Attributes:
        members: Tuple of integers, their numbers.
        num_bytes: Bytes of all of them with their slots.
        family: Name of what they are in: groups of one family and shape, such
            as queries, keys and values, also move together.
    """

    members: tuple[int, ...]
    shape: tuple[int, ...]
    num_bytes: int
    family: str = ""


class Search:
    """Finds the layout that costs least.

    Args:
        rows_axis: The mesh axis that divides rows, or `None`. Variables are
            divided along it only where that sends less, as for tables, or
            where they don't fit otherwise.
        groups: Sequence of `Group`. Variables in none stay as they are in what
            the search begins with.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        rows_axis: int | None,
        groups: Sequence[Group],
        evaluate: Callable[[Layout], Cost],
    ) -> None:
        self._sizes = sizes
        self._rows_axis = rows_axis
        self._of_rows = () if rows_axis is None else (rows_axis,)
        self._groups = sorted(groups, key=lambda one: -one.num_bytes)
        self._evaluate = evaluate
        self._costs: dict[Layout, Cost] = {}

    @property
    def tried(self) -> int:
        """Number of layouts that were evaluated."""
        return len(self._costs)

    def cost(self, layout: Layout) -> Cost:
        """Returns what a layout costs."""
        if layout not in self._costs:
            self._costs[layout] = self._evaluate(layout)
        return self._costs[layout]

    def run(
        self,
        starts: Sequence[Layout],
        most: int | None,
        others: Sequence[Layout] = (),
    ) -> Layout:
        """Returns the layout that costs least of those that fit.

        Args:
            most: Integer, bytes that a device may hold, or `None`.
            others: Layouts of undivided variables and divided inputs, which are
                followed where they are promising.

        Returns:
            The layout; if none fits, the one that holds least.
        """
        least = self._most_divided(starts[0])
        if most is not None and self.cost(least).held > most:
            return least
        ends = [self._descend(start, Cost.first) for start in starts]
        ends = [self._descend(end, Cost.total) for end in (*starts[1:], *ends)]
        ends.append(self._descend(starts[0], Cost.total, families_first=True))
        found = min(ends, key=lambda one: self.cost(one).total())
        for other in others:
            if self._is_promising(other, starts[0], least, found):
                end = self._descend(other, Cost.total)
                found = min(
                    (found, end), key=lambda one: self.cost(one).total()
                )
        # Rows of a table that a batch looks up are fewer than its gradient's.
        sends_less = functools.partial(Cost.total, price=0.0)
        found = self._descend(found, sends_less, self._of_rows)
        if most is None or self.cost(found).held <= most:
            return found
        for price in _PRICES:
            value = functools.partial(Cost.total, price=price)
            for start in (found, self._with_rows(found)):
                found = min(
                    (
                        found,
                        self._descend(start, value, range(len(self._sizes))),
                    ),
                    key=lambda one: value(self.cost(one)),
                )
            if self.cost(found).held <= most:
                break
        return min(self._costs, key=lambda one: self._rank(one, most))

    def _is_promising(
        self, other: Layout, whole: Layout, least: Layout, found: Layout
    ) -> bool:
        """Whether a layout of divided inputs may end cheaper than what is found.

        It must divide half of the work, and be cheaper already if its variables
        held half of what dividing them can save: weights are sent for that.
        """
        cost, most = self.cost(other), self.cost(whole).flops
        if cost.flops > (most + cost.share) / 2:
            return False
        saved = (cost.held - self.cost(least).held) / 2
        return cost.total() - saved < self.cost(found).total()

    def _most_divided(self, layout: Layout) -> Layout:
        """Returns the layout that holds least; only groups are divided."""
        found = list(layout)
        for one in self._groups:
            for member in one.members:
                found[member] = most_divided(one.shape, self._sizes)
        return tuple(found)

    def _with_rows(self, layout: Layout) -> Layout:
        """Returns a layout in which the axis of the rows divides variables, too.

        It divides the longest axis of each that is free.
        """
        if self._rows_axis is None:
            return layout
        found, size = list(layout), self._sizes[self._rows_axis]
        for one in self._groups:
            for member in one.members:
                axes = list(layout[member])
                free = [n for n in range(len(one.shape)) if n not in axes]
                axis = max(free, key=lambda n: one.shape[n], default=None)
                if axis is not None and one.shape[axis] >= size:
                    axes[self._rows_axis] = axis
                found[member] = tuple(axes)
        return tuple(found)

    def _rank(self, layout: Layout, most: int) -> tuple[int, float]:
        """Returns a sort key: what is held above a bound, then the cost."""
        cost = self._costs[layout]
        return max(cost.held - most, 0), cost.total()

    def _descend(
        self,
        layout: Layout,
        value: Callable[[Cost], float],
        overs: Collection[int] | None = None,
        families_first: bool = False,
    ) -> Layout:
        """Moves variables as long as that makes the layout cheaper.

        Args:
            overs: Mesh axes that divide. Default: all but that of the rows.
            families_first: Whether groups of one family move together first.
        """
        if overs is None:
            overs = [
                over
                for over in range(len(self._sizes))
                if over not in self._of_rows
            ]
        for parts in self._parts(families_first):
            for _ in range(_MOST_SWEEPS):
                before = layout
                for members, shape in parts:
                    moved = self._moves(layout, members, shape, overs)
                    layout = min(
                        (layout, *moved), key=lambda one: value(self.cost(one))
                    )
                if layout == before:
                    break
        return layout

    def _parts(self, families_first: bool) -> Iterator[list[_Part]]:
        """Yields lists of variables that move together: large ones, then small."""
        total = sum(one.num_bytes for one in self._groups)
        large: list[Group] = []
        small: list[Group] = []
        for one in self._groups:
            is_large = one.num_bytes >= _LARGE * total
            (large if is_large else small).append(one)
        families: dict[tuple[str, tuple[int, ...]], list[Group]] = {}
        for one in large:
            families.setdefault((one.family, one.shape), []).append(one)
        together = [
            (tuple(m for one in own for m in one.members), own[0].shape)
            for own in families.values()
            if len(own) > 1
        ]
        if families_first:
            yield together + _alone(large)
        else:
            yield _alone(large)
            yield together
        yield [
            (one.members[first::2], one.shape)
            for one in large
            for first in (0, 1)
            if len(one.members) > 1
        ]
        if sum(len(one.members) for one in large) <= _MOST_SINGLES:
            yield [
                ((member,), one.shape)
                for one in large
                for member in one.members
            ]
        yield _alone(small)

    def _moves(
        self,
        layout: Layout,
        members: Sequence[int],
        shape: tuple[int, ...],
        overs: Collection[int],
    ) -> Iterator[Layout]:
        """Yields layouts that differ in one mesh axis of some variables."""
        for over in overs:
            size = self._sizes[over]
            for axis in (None, *range(len(shape))):
                if axis is not None and shape[axis] < size:
                    continue
                moved = list(layout)
                for member in members:
                    axes = layout[member]
                    if axis is None or axis not in axes:
                        moved[member] = (*axes[:over], axis, *axes[over + 1 :])
                if tuple(moved) != layout:
                    yield tuple(moved)


def most_divided(shape: tuple[int, ...], sizes: Sequence[int]) -> AxesToShard:
    """Returns the axes of a variable of which each device holds least.

    Example:

    >>> most_divided((5, 4), (2, 4))
    (0, 1)
    """
    options = itertools.product((None, *range(len(shape))), repeat=len(sizes))
    return min(
        (axes for axes in options if _can_divide(axes, shape, sizes)),
        key=lambda axes: elements_of_part(shape, axes, sizes),
    )


def _can_divide(
    axes: AxesToShard, shape: tuple[int, ...], sizes: Sequence[int]
) -> bool:
    """Whether axes are long enough, and divided along one mesh axis each."""
    divided = [(n, size) for n, size in zip(axes, sizes) if n is not None]
    is_once = len({n for n, _ in divided}) == len(divided)
    return is_once and all(shape[n] >= size for n, size in divided)


def _alone(groups: Sequence[Group]) -> list[_Part]:
    return [(one.members, one.shape) for one in groups]
