"""Communication of sharded variables between workers.

Reduce-scatters, all-gathers and exchanges of parts. TensorFlow's all-gather and
all-to-all take parts of equal sizes: parts are padded to the longest, as their
sizes are known. (Its `CollectiveReduceScatterV2` has a kernel for NCCL only, in
TensorFlow 2.18 to 2.21.)
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import tensorflow as tf

from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.ir.sent_types import (
    BYTES_PER_WORD,
    GATHERED_AS,
    SENT_AS,
)
from kerasmgpu.partitioner.lowering.collective_operations import Collectives
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.lengths import (
    entry_of,
    padded,
    padded_length,
    reduced,
)
from kerasmgpu.partitioner.lowering.replicas import split, unpacked
from kerasmgpu.partitioner.rules.kinds import Sharded
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.references import Reference


class _Members(NamedTuple):
    """The members of a collective: hosts, or replicas.

    Attributes:
        name: `"hosts"` or `"replicas"`.
        own: Indices of this process's members among all.
        places: Places of this process's members.
        sizes: For every member, the elements of its part along the sharded
            axis.
    """

    name: str
    own: Sequence[int]
    places: Sequence[int]
    sizes: Sequence[int]

    @property
    def longest(self) -> int:
        return max(self.sizes)


class VariableCollectives(Collectives):
    """Replicas that send each other parts of sharded variables."""

    # All-gather ---------------------------------------------------------------

    def gathered_parts(
        self, build: Function, one: Value, parts: Sequence[Reference]
    ) -> list[Reference]:
        """All-gathers a variable's parts; returns references by replica.

        See `sent_types.has_parts`.
        """
        axis, members = one.sharded.axis, self._members(one.sharded)
        dtype = one.tensor.dtype
        sent_type = GATHERED_AS[dtype]
        if members.name == "hosts":
            parts = [build.concat(parts, axis, HOST)]
        stacked = (-1, *_with_size(one, members.longest))
        are_bytes = dtype.size == 1
        is_even = len(set(members.sizes)) == 1 and axis == 0 and not are_bytes
        elements = math.prod(stacked[1:])
        if are_bytes:
            elements = -(-elements // BYTES_PER_WORD)
        keys = self.next_keys(
            build, members.name, "Gather", elements, sent_type
        )
        gathered = []
        for part, own, place in zip(parts, members.own, members.places):
            value = part if are_bytes else build.cast(part, sent_type, place)
            if not is_even:
                missing = members.longest - members.sizes[own]
                value = _stacked(build, value, one, missing, place)
            if are_bytes:
                value = _words(build, value, math.prod(stacked[1:]), place)
            gathered.append(
                self.collective_op(
                    build, "CollectiveGatherV2", value, place, keys
                )
            )
        build.writer.keep_all_or_none(gathered)
        made = []
        for value in gathered:
            if are_bytes:
                value = _bytes(build, value, dtype, stacked)
            if not is_even:
                value = _unstacked(build, value, axis, members.sizes)
            made.append(build.cast(value, dtype))
        return build.same(made[0]) if members.name == "hosts" else made

    # Reduce-scatter -----------------------------------------------------------

    def reduce_scatter(
        self,
        build: Function,
        sums: Sequence[Value],
        parts: Sequence[Sequence[Reference]],
    ) -> Sequence[Sequence[Reference]]:
        if self.mesh.num_workers == 1:
            return super().reduce_scatter(build, sums, parts)
        results: dict[int, list[Reference]] = {}
        dtypes = [own[0].dtype for own in parts]
        for dtype in dict.fromkeys(dtypes):
            numbers = [n for n, one in enumerate(dtypes) if one == dtype]
            pack = [
                _Part(sums[n], self._members(sums[n].sharded)) for n in numbers
            ]
            shares = self._scattered_pack(
                build, pack, [parts[n] for n in numbers]
            )
            if self.mesh.reduces_on_host_first:
                shares = [
                    self._of_replicas(build, own[0], sums[n].sharded)
                    for n, own in zip(numbers, shares)
                ]
            results.update(zip(numbers, shares))
        return [results[number] for number in range(len(sums))]

    def _scattered_pack(
        self,
        build: Function,
        pack: "Sequence[_Part]",
        parts: Sequence[Sequence[Reference]],
    ) -> list[list[Reference]]:
        """Reduce-scatters tensors of one type by one all-to-all.

        Each member sends to every other the receiver's rows, as one vector, and
        adds up the vectors that it receives in the order of the members.

        Returns:
            For each tensor, references by member of this process.
        """
        members, dtype = pack[0].members, parts[0][0].dtype
        if members.name == "hosts":
            parts = [[_sum(build, own, HOST)] for own in parts]
        num, lengths = len(members.sizes), [one.longest for one in pack]
        keys = self.next_keys(
            build, members.name, "AddScattered", sum(lengths), dtype
        )
        received = []
        for number, place in enumerate(members.places):
            rows = [
                one.rows_to_send(build, own[number], place)
                for one, own in zip(pack, parts)
            ]
            value = build.concat(rows, 1)
            received.append(
                self.collective_op(
                    build, "CollectiveAllToAllV2", value, place, keys
                )
            )
        build.writer.keep_all_or_none(received)
        results: list[list[Reference]] = [[] for _ in pack]
        for value, own in zip(received, members.own):
            total = _sum(build, build.op("Unpack", [value], num=num))
            vectors = unpacked(build, total, lengths)
            for result, one, vector in zip(results, pack, vectors):
                result.append(one.own_rows(build, vector, own))
        return results

    def _of_replicas(
        self, build: Function, own: Reference, kind: Sharded
    ) -> list[Reference]:
        """Splits a worker's rows over its replicas."""
        sizes = self._sizes(kind)[self.mesh.first :][: self.mesh.num]
        return split(build, own, kind.axis, sizes, HOST)

    # Exchanges of rows --------------------------------------------------------

    def exchange_counts(
        self, build: Function, pieces: Sequence[Sequence[Reference]]
    ) -> Reference | None:
        if self.mesh.num_workers == 1:
            return None
        number = build.sizes
        own = [number.packed(list(map(number.size, row))) for row in pieces]
        return self._of_all(build, number.packed(own), 2)

    def exchange(
        self,
        build: Function,
        pieces: Sequence[Sequence[Reference]],
        counts: Reference | None,
        rank: int,
        is_back: bool = False,
    ) -> list[list[Reference]]:
        """Pads pieces to one length, which TensorFlow's all-to-all requires.

        See `Replicas.exchange`.
        """
        if counts is None:
            return super().exchange(build, pieces, counts, rank)
        number, dtype = build.sizes, pieces[0][0].dtype
        sent_type = SENT_AS.get(dtype, dtype)
        keys = self.next_keys(build, "replicas", "Exchange", None, sent_type)
        longest = reduced(build, "Max", build.flat(counts, HOST))
        length, instance = padded_length(
            build, longest, cast(int, keys.instance)
        )
        keys = keys._replace(instance=instance)
        zero = number.scalar(0)
        received = []
        for place, row in enumerate(pieces):
            stacked = []
            for piece in row:
                rest = number.minus(length, number.size(piece))
                around = [zero, rest] + [zero] * (2 * rank - 2)
                piece = build.cast(piece, sent_type)
                stacked.append(padded(build, piece, around))
            value = build.op("Pack", stacked)[0]
            received.append(
                self.collective_op(
                    build, "CollectiveAllToAllV2", value, place, keys
                )
            )
        build.writer.keep_all_or_none(received)
        begin, one = (number.packed([number.scalar(n)]) for n in (0, 1))
        results = []
        for place, value in enumerate(received):
            own, rows = self.mesh.first + place, []
            for other, piece in enumerate(
                build.op("Unpack", [value], num=self.mesh.total)
            ):
                entry = (own, other) if is_back else (other, own)
                end = number.packed([entry_of(build, counts, *entry)])
                piece = build.strided_slice(piece, [begin, end, one])
                rows.append(build.cast(piece, dtype))
            results.append(rows)
        return results

    def _members(self, sharded: Sharded) -> _Members:
        """Returns the members of a collective, with the sizes of their parts."""
        mesh = self.mesh
        if mesh.reduces_on_host_first:
            sizes = self._sizes(sharded, by_worker=True)
            return _Members("hosts", [mesh.worker], [HOST], sizes)
        own = range(mesh.first, mesh.first + mesh.num)
        return _Members("replicas", own, range(mesh.num), self._sizes(sharded))

    def _sizes(self, sharded: Sharded, by_worker: bool = False) -> list[int]:
        """Returns each replica's, or worker's, elements along the sharded axis."""
        inner, rows = cast(int, sharded.inner), cast(int, sharded.rows.size)
        return [n * inner for n in self.mesh.part_sizes(rows, by_worker)]


class _Part(NamedTuple):
    """A value of a pack that is reduce-scattered."""

    one: Value
    members: _Members

    @property
    def longest(self) -> int:
        """Number of elements of the longest part."""
        return self._elements(self.members.longest)

    def _elements(self, size: int) -> int:
        return math.prod(_with_size(self.one, size))

    def rows_to_send(
        self, build: Function, whole: Reference, place: int
    ) -> Reference:
        """Returns a matrix with a row per member: its part, flat and padded."""
        sizes, longest = self.members.sizes, self.longest
        axis = self.one.sharded.axis
        if axis == 0 and len(set(sizes)) == 1:
            shape = build.constant([len(sizes), longest])
            return build.reshape(whole, shape, place)
        rows = []
        pieces = split(build, whole, axis, sizes, place)
        for piece, size in zip(pieces, sizes):
            flat = build.flat(piece)
            missing = longest - self._elements(size)
            if missing:
                around = list(map(build.sizes.scalar, (0, missing)))
                flat = padded(build, flat, around)
            rows.append(flat)
        return build.op("Pack", rows)[0]

    def own_rows(
        self, build: Function, vector: Reference, own: int
    ) -> Reference:
        """Returns a member's rows, cut out of their padded vector."""
        shape = _with_size(self.one, self.members.sizes[own])
        elements = math.prod(shape)
        if elements < self.longest:
            bounds = [build.constant([n]) for n in (0, elements, 1)]
            vector = build.strided_slice(build.flat(vector), bounds)
        return build.reshape(vector, build.constant(shape))


def _with_size(one: Value, size: int) -> tuple[int, ...]:
    """Returns a value's static shape, with another size of its sharded axis."""
    axis, shape = one.sharded.axis, cast(tuple[int, ...], one.tensor.shape)
    return (*shape[:axis], size, *shape[axis + 1 :])


def _sum(
    build: Function, values: Sequence[Reference], place: int | None = None
) -> Reference:
    if len(values) == 1:
        return values[0]
    return build.op("AddN", values, place)[0]


def _stacked(
    build: Function, value: Reference, one: Value, missing: int, place: int
) -> Reference:
    """Pads a part by `missing` zeros along its axis, and adds a first axis."""
    if missing:
        paddings = [build.sizes.scalar(0)] * (2 * len(one.tensor.shape))
        paddings[2 * one.sharded.axis + 1] = build.sizes.scalar(missing)
        value = padded(build, value, paddings, place)
    return build.op("ExpandDims", [value, build.constant(0)], place)[0]


def _words(
    build: Function, value: Reference, elements: int, place: int
) -> Reference:
    """Returns the bytes of a part `[1, …]` as integers `[1, words]`."""
    value = build.reshape(value, build.constant([1, elements]), place)
    missing = -elements % BYTES_PER_WORD
    if missing:
        paddings = list(map(build.sizes.scalar, (0, 0, 0, missing)))
        value = padded(build, value, paddings, place)
    shape = build.constant([1, -1, BYTES_PER_WORD])
    value = build.reshape(value, shape, place)
    return build.op("Bitcast", [value], place, type=tf.int32)[0]


def _bytes(
    build: Function, words: Reference, dtype: tf.DType, stacked: Sequence[int]
) -> Reference:
    """Undoes `_words` for the parts of all members.

    Args:
        words: Reference to integers `[members, words]`.
        stacked: Shape of the parts, padded to one shape, with a first axis.
    """
    (value,) = build.op("Bitcast", [words], type=dtype)
    elements = math.prod(stacked[1:])
    missing = -elements % BYTES_PER_WORD
    flat = build.constant([-1, elements + missing])
    value = build.reshape(value, flat)
    if missing:
        value = split(build, value, 1, [elements, missing])[0]
    return build.reshape(value, build.constant(stacked))


def _unstacked(
    build: Function, stack: Reference, axis: int, sizes: Sequence[int]
) -> Reference:
    """Concatenates a stack of padded parts, without the padding."""
    parts = [
        split(build, part, axis, [size, max(sizes) - size])[0]
        if size < max(sizes)
        else part
        for part, size in zip(
            build.op("Unpack", [stack], num=len(sizes)), sizes
        )
    ]
    return build.concat(parts, axis)
