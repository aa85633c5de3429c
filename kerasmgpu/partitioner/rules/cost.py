"""Estimates the bytes that a plan sends, by which the planner chooses plans.

An all-gather of `b` bytes sends `(N - 1) b` bytes over all N replicas, and an
all-reduce twice as many (Patarasuk and Yuan, JPDC 2009: a ring's reduce-scatter
and all-gather; no algorithm sends fewer). The factor `N - 1` is common to all
plans and left out.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from kerasmgpu.partitioner.rules.kinds import (
    Kind,
    MeshAxes,
    Partial,
    PerReplica,
    Sharded,
    WithHalo,
    is_exchanged,
    is_moved,
    is_of_variable,
    range_of,
)
from kerasmgpu.partitioner.rules.window_ranges import moved
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.replica_arithmetic import ASSUMED_SIZE, bounds_of

_Ranged = Sharded | WithHalo


class CostModel:
    """Estimates costs of plans for batches of certain sizes.

    Attributes:
        known: Value of each symbol (as its `Symbol.joined`) that stands for a
            size of the batch; others count as `ASSUMED_SIZE`.
        number_along: Function that returns the number of devices along mesh axes.
    """

    def __init__(
        self,
        known: Mapping[sizes.Symbol, int] | None = None,
        number_along: Callable[[MeshAxes], int] = lambda along: 2,
    ) -> None:
        self.known = dict(known or {})
        self.number_along = number_along

    def elements_of(self, tensor: Tensor) -> int:
        """Returns a tensor's number of elements; 1 if its rank is unknown."""
        total = 1
        for size in tensor.shape or ():
            if size is None:
                total *= ASSUMED_SIZE
            elif isinstance(size, int):
                total *= size
            else:
                total *= max(self.value_of(size), 0)
        return total

    def value_of(self, size: sizes.SizeLike) -> int:
        """Evaluates a size for this batch."""
        if isinstance(size, int):
            return size
        known = {
            symbol: self.known.get(symbol.joined, ASSUMED_SIZE)
            for symbol in size.symbols
        }
        return sizes.evaluate(size, known)

    def bytes_of(self, tensor: Tensor) -> int:
        """Returns a tensor's number of bytes for this batch."""
        return self.elements_of(tensor) * tensor.dtype.size

    def sent(
        self,
        node: Node,
        given: Sequence[Kind],
        wants: Sequence[Kind],
        gives: Sequence[Kind],
        free: Collection[Tensor] = (),
        target: Kind | None = None,
        stored: Mapping[Tensor, Collection[Tensor]] = MappingProxyType({}),
    ) -> int:
        """Returns the bytes that a plan of a node sends, divided by `N - 1`.

        Args:
            wants: Kinds that the plan wants the inputs in.
            gives: Kinds of its outputs. The all-reduce of partial ones counts.
            free: Inputs that can be computed whole without communication.
            target: The kind that its outputs are needed in, if they go into a
                sharded variable; otherwise `None`.
            stored: See `table.Plans`.
        """
        total = 0
        for tensor, kind, want in zip(node.inputs, given, wants):
            if kind == want or tensor in free:
                continue
            if is_moved(kind, want):
                total += self._moved(tensor, kind, want)
            elif is_exchanged(kind, want):
                total += self.bytes_of(tensor) // self.number_along(
                    cast(Sharded, want).rows.over
                )
            elif isinstance(kind, Sharded):
                read = stored.get(tensor, (tensor,))
                total += min(
                    self.bytes_of(tensor), sum(map(self.bytes_of, read))
                )
            elif isinstance(kind, Partial) and is_of_variable(want):
                total += self.bytes_of(tensor)  # A reduce-scatter.
            elif isinstance(kind, (Partial, PerReplica)):
                total += 2 * self.bytes_of(tensor)
        mixes = any(
            isinstance(kind, Sharded) and not is_of_variable(kind)
            for kind in given
        )
        for tensor, kind in zip(node.outputs, gives):
            if target is not None:
                total += (kind != target) * self.bytes_of(tensor)
            elif isinstance(kind, Partial):
                total += 2 * self.bytes_of(tensor)
            elif mixes and is_of_variable(kind):
                # An output sharded as a weight is later sharded by rows again.
                total += self.bytes_of(tensor)
        return total

    def _moved(self, tensor: Tensor, kind: Kind, want: Kind) -> int:
        """Returns the bytes that replicas send their neighbours, over `N - 1`.

        They are those of two replicas: each further one has one neighbour more.
        """
        before, after = (
            [
                range_of(one, (start, end))
                for start, end in zip(bounds, bounds[1:])
            ]
            for one in (cast(_Ranged, kind), cast(_Ranged, want))
            for bounds in [bounds_of(cast(int, one.rows.size), 2)]
        )
        size = cast(int, cast(Sharded, kind).size)
        return self.bytes_of(tensor) * moved(before, after) // size
