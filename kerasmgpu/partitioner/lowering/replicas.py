"""Replicas of one process: their shares of rows, and sums in shared memory."""

import copy
import functools
from collections.abc import Sequence
from typing import Protocol, cast

import tensorflow as tf

from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.lowering import device_shares, entries
from kerasmgpu.partitioner.lowering.function_writer import Function, References
from kerasmgpu.partitioner.lowering.packing import packs_of_shape, split
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import Rows, Sharded
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.references import Reference
from kerasmgpu.replica_arithmetic import bounds_of

SMALL = 1 << 14
"""Bytes up to which partial values of one shape are stacked and summed as one."""

_COMBINE = {
    "all": "LogicalAnd",
    "any": "LogicalOr",
    "max": "Maximum",
    "min": "Minimum",
    "sum": "AddV2",
}


class Together(Protocol):
    """Interface by which workers give up an attempt at a step together."""

    def begin(self) -> bool:
        """Begins an attempt; returns whether no worker has failed yet."""

    def end(self) -> None:
        """Ends an attempt; failures of other workers no longer abort it."""

    def give_up(self) -> None:
        """Tells the others that this worker ran out of memory."""

    def is_given_up(self) -> bool:
        """Whether another worker ran out of memory; awaits its message."""

    def start_anew(self, flag: bool) -> bool:
        """Waits for all workers, and resets their collectives.

        Returns whether `flag` is true on any worker.
        """


class Agreement(Protocol):
    """Interface by which workers agree on what each of them writes.

    Every method is a collective of all workers.
    """

    def shapes_of_first(
        self, shapes: Sequence[Sequence[int | None]]
    ) -> Sequence[Sequence[int | None]]:
        """Returns the first worker's shapes of a batch."""

    def common(self, numbers: Sequence[int]) -> set[int]:
        """Returns the numbers that all workers pass."""

    def first_difference(self, numbers: Sequence[int]) -> int | None:
        """Returns the first index at which workers differ; `None` without one."""


class Replicas:
    """Writes what the replicas of one process send each other.

    Args:
        agreement: `Agreement` of the workers; `None` for a single one.
        together: `Together`, by which all workers run a step again; `None` if
            they never do.
    """

    def __init__(
        self,
        mesh: Mesh,
        agreement: Agreement | None = None,
        together: Together | None = None,
    ) -> None:
        self.mesh = mesh
        self.agreement = agreement
        self.together = together

    def split(self, micro_batches: int) -> "Replicas":
        """Returns replicas with several shares per device; see `Mesh.split`."""
        if micro_batches == 1:
            return self
        return self.on(self.mesh.split(micro_batches))

    def on(self, mesh: Mesh) -> "Replicas":
        """Returns replicas that communicate in the same way, on another mesh."""
        other = copy.copy(self)
        other.mesh = mesh
        return other

    # Rows --------------------------------------------------------------------

    def shares(
        self, build: Function, rows: Rows
    ) -> list[tuple[Reference, Reference]]:
        """Computes each local replica's first row and number of rows on the host.

        Returns:
            List of pairs of references, one per local replica; along a line of
            the mesh axis that the rows are divided along.
        """
        if rows.of is not None:
            return entries.shares(build, rows)
        if rows.are_fixed:
            places = self.mesh.lines(rows.over)[0]
            return _pairs(build, [self.mesh.part_of(rows, n) for n in places])
        counts = self.passed_counts(build, rows)
        if counts is not None:
            return self.shares_of_counts(build, rows, counts)
        if isinstance(rows.size, int):
            bounds = bounds_of(rows.size, self.mesh.size(rows.over))
            num = self.mesh.num_along(rows.over)
            first = self.mesh.first_along(rows.over)
            own = bounds[first:][: num + 1]
            return _pairs(build, list(zip(own, own[1:])))
        return self._computed_shares(build, rows)

    def shares_of_counts(
        self, build: Function, rows: Rows, counts: Sequence[Reference]
    ) -> list[tuple[Reference, Reference]]:
        """Returns the first row and number of rows of each local replica.

        Args:
            rows: Rows of an input that is passed in shares.
        """
        starts = [build.sizes.scalar(0)]
        for count in counts[:-1]:
            starts.append(build.sizes.plus(starts[-1], count))
        return list(zip(starts, counts))

    def total_rows(self, build: Function, rows: Rows) -> Reference:
        """Returns the global number of rows of an input passed in shares."""
        counts = cast(list[Reference], self.passed_counts(build, rows))
        return build.sizes.op("AddN", *counts)

    def passed_counts(
        self, build: Function, rows: Rows
    ) -> list[Reference] | None:
        """Returns each local share's number of rows.

        Returns `None` if inputs with these rows are passed whole.
        """
        tensor = self._passed(build, rows)
        return None if tensor is None else self._counts(build, tensor)

    def _passed(self, build: Function, rows: Rows) -> Tensor | None:
        """Returns the first input passed in shares of these rows, or `None`."""
        for tensor in build.graph.inputs:
            if not build.is_written(tensor) or tensor.dtype == tf.resource:
                continue
            for kind in build.natural(tensor).placement:
                if isinstance(kind, Sharded) and kind.rows == rows:
                    return tensor
        return None

    def _counts(self, build: Function, tensor: Tensor) -> list[Reference]:
        """Returns the number of rows of each local share of an input."""
        if self.mesh.micro_batches > 1:
            return device_shares.passed_counts(build, tensor)
        return list(map(build.sizes.size, build.parts(tensor)))

    def _computed_shares(
        self, build: Function, rows: Rows
    ) -> list[tuple[Reference, Reference]]:
        """Returns `shares` of rows whose number the host computes."""
        mesh, sizes = self.mesh, build.sizes
        size, total = sizes.scalar(rows.size), mesh.size(rows.over)
        numbers = build.constant(range(total + 1))
        vector = sizes.first_row(numbers, size, total)
        starts = build.op("Unpack", [vector], num=total + 1)
        first = mesh.first_along(rows.over)
        return [
            (starts[number], sizes.minus(starts[number + 1], starts[number]))
            for number in range(first, first + mesh.num_along(rows.over))
        ]

    # Communication -----------------------------------------------------------

    def gathered_counts(self, build: Function, tensor: Tensor) -> Reference:
        """All-gathers the rows' numbers of an input passed in shares: a vector."""
        return build.sizes.packed(self._counts(build, tensor))

    def gather(
        self, build: Function, one: Value, parts: Sequence[Reference]
    ) -> References:
        """All-gathers the rows of a sharded value, in order.

        Returns:
            References by replica.
        """
        if self.mesh.num == 1:
            return parts
        place = 0 if one.tensor.dtype.is_floating else HOST
        return build.same(self.joined(build, one, parts, place))

    def joined(
        self,
        build: Function,
        one: Value,
        parts: Sequence[Reference],
        place: int,
    ) -> Reference:
        """Concatenates the local replicas' rows of a value at a place."""
        sharded, shape = one.sharded, one.tensor.shape
        axis = sharded.axis
        if sharded.outer == 1:
            return build.concat(parts, axis, place)
        # Several blocks of all rows: concatenated block by block.
        split = []
        for number, part in enumerate(parts):
            outer = build.sizes.scalar(sharded.outer)
            _, count = build.sizes.bounds(sharded, number)
            blocks = build.sizes.with_axis(shape, axis, outer, count)
            split.append(build.reshape(part, blocks, number))
        blocks = build.concat(split, axis + 1, place)
        size = self.worker_size(build, sharded)
        own = build.sizes.with_axis(shape, axis, size)
        return build.reshape(blocks, own, place)

    def worker_size(self, build: Function, sharded: Sharded) -> Reference:
        """Returns the sum of the local replicas' sizes of a sharded axis."""
        return build.sizes.scalar(sharded.size)

    def reduce(
        self,
        build: Function,
        tensors: Sequence[Tensor],
        parts: Sequence[Sequence[Reference]],
        by: str,
    ) -> Sequence[References]:
        """All-reduces partial tensors.

        Args:
            tensors: The tensors; all are reduced in the same way.
            parts: For each, references by replica.
            by: `"sum"`, `"max"`, `"min"`, `"all"` or `"any"`.

        Returns:
            For each tensor, references by replica.
        """
        if self.mesh.num == 1:
            return parts
        if by != "sum":
            return [
                build.same(combined(build, references, by))
                for references in parts
            ]
        return self._sums(build, tensors, parts)

    def _sums(
        self,
        build: Function,
        tensors: Sequence[Tensor],
        parts: Sequence[Sequence[Reference]],
    ) -> list[list[Reference]]:
        """Returns for each tensor, by replica, the sum of its parts."""
        totals: dict[int, list[Reference]] = {}
        for numbers in packs_of_shape(tensors, SMALL):
            sums = self._sum(build, [parts[n] for n in numbers])
            totals.update(zip(numbers, map(build.same, sums)))
        return [totals[number] for number in range(len(tensors))]

    def reduce_scatter(
        self,
        build: Function,
        sums: Sequence[Value],
        parts: Sequence[Sequence[Reference]],
    ) -> Sequence[Sequence[Reference]]:
        """Sums partial tensors; each replica gets its rows of the sum.

        Args:
            sums: The results, sharded as variables.
            parts: For each tensor, references by replica, in the type in which
                it is summed.

        Returns:
            For each tensor, references by replica.
        """
        if self.mesh.num == 1:
            return parts
        return [
            self._scattered_sum(build, one.sharded, own)
            for one, own in zip(sums, parts)
        ]

    def _scattered_sum(
        self, build: Function, kind: Sharded, parts: Sequence[Reference]
    ) -> list[Reference]:
        """Sums the local replicas' parts; returns each replica's rows of it."""
        places, axis = range(self.mesh.num), kind.axis
        sizes: Sequence[int] | Sequence[Reference]
        if kind.rows.are_fixed:
            bounds = [self.mesh.part_of(kind.rows, place) for place in places]
            inner = cast(int, kind.inner)
            sizes = [(end - start) * inner for start, end in bounds]
        else:
            sizes = [build.sizes.bounds(kind, place)[1] for place in places]
        if self.mesh.shares_memory:
            return split(build, build.op("AddN", parts, 0)[0], axis, sizes)
        cut = [split(build, parts[n], axis, sizes, n) for n in places]
        # Received pieces first: a sum in the buffer of the replica's own piece
        # would keep its whole part alive.
        return [
            build.op(
                "AddN", [one[n] for one in (*cut[n + 1 :], *cut[: n + 1])], n
            )[0]
            for n in places
        ]

    def exchange_counts(
        self, build: Function, pieces: Sequence[Sequence[Reference]]
    ) -> Reference | None:
        """All-gathers the number of rows that each replica sends to every other.

        Args:
            pieces: For each local replica, the piece that it sends to each of
                all replicas.

        Returns:
            Reference to a matrix, `[senders, receivers]`; `None` in one
            process, where nobody needs it.
        """
        return None

    def exchange(
        self,
        build: Function,
        pieces: Sequence[Sequence[Reference]],
        counts: Reference | None,
        rank: int,
        is_back: bool = False,
    ) -> list[list[Reference]]:
        """Exchanges pieces of different lengths between all replicas: all-to-all.

        Args:
            pieces: For each local replica, the piece that it sends to each of
                all replicas; their numbers of rows differ.
            counts: See `exchange_counts`.
            rank: Rank of the pieces.
            is_back: Whether pieces go back, from the receivers of `counts` to
                its senders.

        Returns:
            For each local replica the pieces from each of all replicas.
        """
        return [list(received) for received in zip(*pieces)]

    def agreed(
        self, build: Function, references: References, tensor: Tensor
    ) -> References:
        """Broadcasts a whole value from the first worker; see `passes.agree`."""
        return references

    def agree_to_assign(self, build: Function, computed: str) -> str:
        """Writes nodes that wait until all workers have computed a step.

        Args:
            computed: Name of a node that fires when this worker has computed
                it.

        Returns:
            Name of a node that fires when all workers have.
        """
        return computed

    def _sum(
        self, build: Function, parts: Sequence[Sequence[Reference]]
    ) -> list[Reference]:
        """Returns the sums of tensors of one shape, from their parts by place.

        Parts of several tensors are stacked first.
        """
        if len(parts) == 1:
            return build.op("AddN", parts[0], 0)
        stacks = [
            build.op("Pack", [refs[place] for refs in parts], place)[0]
            for place in range(self.mesh.num)
        ]
        total = build.op("AddN", stacks, 0)[0]
        return build.op("Unpack", [total], num=len(parts))


def _pairs(
    build: Function, bounds: Sequence[tuple[int, int]]
) -> list[tuple[Reference, Reference]]:
    """Returns first rows and numbers of rows of shares of known bounds."""
    scalar = build.sizes.scalar
    return [(scalar(start), scalar(end - start)) for start, end in bounds]


def combined(
    build: Function, references: Sequence[Reference], by: str, place: int = 0
) -> Reference:
    """Merges values elementwise; see `Replicas.reduce`."""
    return functools.reduce(
        lambda one, other: build.op(_COMBINE[by], [one, other], place)[0],
        references,
    )
