"""Reduce-scatters, all-gathers and exchanges of sharded variables between workers.

Parts have known sizes. TensorFlow's all-gather and all-to-all take equal ones:
parts are padded to the longest. (Its `CollectiveReduceScatterV2` has a kernel
for NCCL only, in TensorFlow 2.18 to 2.21.)
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import tensorflow as tf

from kerasmgpu.partitioner.ir.sent_types import GATHERED_AS, SENT_AS
from kerasmgpu.partitioner.lowering.collective_operations import Collectives
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.lengths import (
    entry_of,
    instance_of,
    padded,
    padded_length,
    reduced,
)
from kerasmgpu.partitioner.lowering.replicas import split
from kerasmgpu.partitioner.mesh import bounds_of
from kerasmgpu.partitioner.rules.kinds import Sharded
from kerasmgpu.partitioner.step.definitions import Attributes, node_name
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.places import HOST


class _Members(NamedTuple):
    """Who takes part in a collective: hosts, or replicas.

    Attributes:
        name: `"hosts"` or `"replicas"`.
        own: Indices of those of this process among all.
        places: Their places.
        sizes: For each of all, its elements along the sharded axis.
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
        self,
        build: Function,
        tensor: Tensor,
        sharded: Sharded,
        parts: Sequence[str],
    ) -> list[str]:
        """All-gathers parts; see `sent_types.has_parts`."""
        dtype, axis, members = (
            tensor.dtype,
            sharded.axis,
            self._members(sharded),
        )
        sent_type = GATHERED_AS[dtype]
        if members.name == "hosts":
            parts = [build.concat(parts, axis, dtype, HOST)]
        is_even = len(set(members.sizes)) == 1 and axis == 0
        keys = self.next_keys(
            build,
            members.name,
            len(members.sizes),
            "Gather",
            math.prod(_with_size(tensor, axis, members.longest)),
            sent_type,
        )
        gathered = []
        for part, own, place in zip(parts, members.own, members.places):
            value = build.cast(part, dtype, sent_type, place)
            if not is_even:
                missing = members.longest - members.sizes[own]
                value = _stacked(
                    build, value, tensor, axis, missing, sent_type, place
                )
            attributes: Attributes = {"T": sent_type}
            gathered.append(
                self.collective_op(
                    build, "CollectiveGatherV2", value, attributes, place, keys
                )
            )
        build.writer.keep_all_or_none(list(map(node_name, gathered)))
        made = []
        for value, place in zip(gathered, members.places):
            if not is_even:
                value = _unstacked(
                    build, value, axis, members.sizes, sent_type, place
                )
            made.append(build.cast(value, sent_type, dtype, place))
        return build.same(made[0]) if members.name == "hosts" else made

    # Reduce-scatter -----------------------------------------------------------

    def reduce_scatter(
        self,
        build: Function,
        tensors: Sequence[Tensor],
        dtypes: Sequence[tf.DType],
        kinds: Sequence[Sharded],
        parts: Sequence[Sequence[str]],
    ) -> Sequence[Sequence[str]]:
        if self.mesh.num_workers == 1:
            return super().reduce_scatter(build, tensors, dtypes, kinds, parts)
        results: dict[int, list[str]] = {}
        for dtype in dict.fromkeys(dtypes):
            numbers = [n for n, one in enumerate(dtypes) if one == dtype]
            pack = [
                _Part(tensors[n], kinds[n].axis, self._members(kinds[n]))
                for n in numbers
            ]
            given = [parts[n] for n in numbers]
            shares = self._scattered_pack(build, dtype, pack, given)
            if self.mesh.reduces_on_host_first:
                shares = [
                    self._of_replicas(build, own[0], kinds[n], dtype)
                    for n, own in zip(numbers, shares)
                ]
            results.update(zip(numbers, shares))
        return [results[number] for number in range(len(tensors))]

    def _scattered_pack(
        self,
        build: Function,
        dtype: tf.DType,
        pack: "Sequence[_Part]",
        parts: Sequence[Sequence[str]],
    ) -> list[list[str]]:
        """Reduce-scatters tensors of one type by one all-to-all.

        Each member sends every other the rows that this one gets, as one
        vector, and adds what it receives in the order of the members.

        Returns:
            For each tensor, references by member of this process.
        """
        members = pack[0].members
        if members.name == "hosts":
            parts = [[_sum(build, own, dtype, HOST)] for own in parts]
        num, lengths = len(members.sizes), [one.longest for one in pack]
        keys = self.next_keys(
            build, members.name, num, "AddScattered", sum(lengths), dtype
        )
        received = []
        for number, place in enumerate(members.places):
            rows = [
                one.rows_to_send(build, own[number], dtype, place)
                for one, own in zip(pack, parts)
            ]
            value = build.concat(rows, 1, dtype, place)
            attributes: Attributes = {"T": dtype}
            received.append(
                self.collective_op(
                    build,
                    "CollectiveAllToAllV2",
                    value,
                    attributes,
                    place,
                    keys,
                )
            )
        build.writer.keep_all_or_none(list(map(node_name, received)))
        results: list[list[str]] = [[] for _ in pack]
        for value, own, place in zip(received, members.own, members.places):
            attributes = {"num": num, "T": dtype, "axis": 0}
            values = build.op("Unpack", [value], attributes, place)
            total = _sum(build, values, dtype, place)
            vectors = split(build, total, 0, lengths, dtype, place)
            for result, one, vector in zip(results, pack, vectors):
                result.append(one.own_rows(build, vector, own, dtype, place))
        return results

    def _of_replicas(
        self, build: Function, own: str, kind: Sharded, dtype: tf.DType
    ) -> list[str]:
        """A worker's rows, split over its replicas."""
        bounds = _bounds(kind, self.mesh.total)
        bounds = bounds[self.mesh.first :][: self.mesh.num + 1]
        counts = [end - start for start, end in zip(bounds, bounds[1:])]
        return split(build, own, kind.axis, counts, dtype, HOST)

    # Exchanges of rows --------------------------------------------------------

    def exchange_counts(
        self, build: Function, pieces: Sequence[Sequence[str]], dtype: tf.DType
    ) -> str | None:
        mesh = self.mesh
        if mesh.num_workers == 1:
            return None
        own = [
            build.sizes.packed([build.sizes.size(one, dtype) for one in row])
            for row in pieces
        ]
        attributes: Attributes = {"N": mesh.num, "T": tf.int32, "axis": 0}
        table = build.op("Pack", own, attributes, HOST)[0]
        behind = mesh.total - mesh.first - mesh.num
        around = build.constant([[mesh.first, behind], [0, 0]], tf.int32, HOST)
        attributes = {"T": tf.int32, "Tpaddings": tf.int32}
        table = build.op("Pad", [table, around], attributes, HOST)[0]
        return self._reduced_over_hosts(build, table, tf.int32, mesh.total**2)

    def exchange(
        self,
        build: Function,
        pieces: Sequence[Sequence[str]],
        counts: str | None,
        rank: int,
        dtype: tf.DType,
        is_back: bool = False,
    ) -> list[list[str]]:
        """Pads pieces to one length: TensorFlow's all-to-all takes equal ones."""
        if counts is None:
            return super().exchange(build, pieces, counts, rank, dtype)
        number = build.sizes
        sent_type = SENT_AS.get(dtype, dtype)
        keys = self.next_keys(
            build, "replicas", self.mesh.total, "Exchange", None, sent_type
        )
        flat = build.constant([-1], tf.int32, HOST)
        longest = reduced(
            build, "Max", build.reshape(counts, flat, tf.int32, HOST)
        )
        length, index = padded_length(build, longest)
        keys = keys._replace(
            instance=instance_of(build, cast(int, keys.instance), index)
        )
        zero = number.scalar(0)
        received = []
        for place, row in enumerate(pieces):
            stacked = []
            for piece in row:
                rest = number.minus(length, number.size(piece, dtype))
                around = [zero, rest] + [zero] * (2 * rank - 2)
                piece = build.cast(piece, dtype, sent_type, place)
                stacked.append(padded(build, piece, around, sent_type, place))
            attributes: Attributes = {"N": len(row), "T": sent_type, "axis": 0}
            value = build.op("Pack", stacked, attributes, place)[0]
            attributes = {"T": sent_type}
            received.append(
                self.collective_op(
                    build,
                    "CollectiveAllToAllV2",
                    value,
                    attributes,
                    place,
                    keys,
                )
            )
        build.writer.keep_all_or_none(list(map(node_name, received)))
        results = []
        for place, value in enumerate(received):
            own = self.mesh.first + place
            attributes = {"num": self.mesh.total, "T": sent_type, "axis": 0}
            rows = []
            for other, piece in enumerate(
                build.op("Unpack", [value], attributes, place)
            ):
                entry = (own, other) if is_back else (other, own)
                end = number.packed([entry_of(build, counts, *entry)])
                begin, one = (
                    number.packed([zero]),
                    number.packed([number.scalar(1)]),
                )
                piece = build.strided_slice(
                    piece, begin, end, one, sent_type, place
                )
                rows.append(build.cast(piece, sent_type, dtype, place))
            results.append(rows)
        return results

    def _members(self, sharded: Sharded) -> _Members:
        """Who takes part in a collective, and the sizes of their parts."""
        mesh, bounds = self.mesh, _bounds(sharded, self.mesh.total)
        name, own = "replicas", range(mesh.first, mesh.first + mesh.num)
        places: Sequence[int] = range(mesh.num)
        if mesh.reduces_on_host_first:
            bounds = bounds[:: mesh.num]
            name, places = "hosts", [HOST]
            own = range(mesh.worker, mesh.worker + 1)
        sizes = [end - start for start, end in zip(bounds, bounds[1:])]
        return _Members(name, own, places, sizes)


class _Part(NamedTuple):
    """A tensor of a pack that is reduce-scattered."""

    tensor: Tensor
    axis: int
    members: _Members

    @property
    def longest(self) -> int:
        """Elements of the longest part."""
        return self._elements(self.members.longest)

    def _elements(self, size: int) -> int:
        return math.prod(_with_size(self.tensor, self.axis, size))

    def rows_to_send(
        self, build: Function, whole: str, dtype: tf.DType, place: int
    ) -> str:
        """A matrix with a row for each member: its part, flat and padded."""
        sizes, longest = self.members.sizes, self.longest
        if self.axis == 0 and len(set(sizes)) == 1:
            shape = build.constant([len(sizes), longest], tf.int32, HOST)
            return build.reshape(whole, shape, dtype, place)
        rows = []
        pieces = split(build, whole, self.axis, sizes, dtype, place)
        for piece, size in zip(pieces, sizes):
            flat = build.flat(piece, dtype, place)
            missing = longest - self._elements(size)
            if missing:
                around = map(build.sizes.scalar, (0, missing))
                flat = padded(build, flat, list(around), dtype, place)
            rows.append(flat)
        attributes = {"N": len(rows), "T": dtype, "axis": 0}
        return build.op("Pack", rows, attributes, place)[0]

    def own_rows(
        self,
        build: Function,
        vector: str,
        own: int,
        dtype: tf.DType,
        place: int,
    ) -> str:
        """A padded vector as the rows of a member."""
        shape = _with_size(self.tensor, self.axis, self.members.sizes[own])
        elements = build.constant([math.prod(shape)], tf.int32, HOST)
        zero, one = (build.constant([n], tf.int32, HOST) for n in (0, 1))
        vector = build.strided_slice(vector, zero, elements, one, dtype, place)
        wanted = build.constant(list(shape), tf.int32, HOST)
        return build.reshape(vector, wanted, dtype, place)


def _bounds(sharded: Sharded, total: int) -> list[int]:
    """Bounds of the replicas' parts along the sharded axis."""
    inner = cast(int, sharded.inner)
    rows = bounds_of(cast(int, sharded.rows.size), total)
    return [bound * inner for bound in rows]


def _with_size(tensor: Tensor, axis: int, size: int) -> tuple[int, ...]:
    """A static shape with another size of an axis."""
    shape = cast(tuple[int, ...], tensor.shape)
    return (*shape[:axis], size, *shape[axis + 1 :])


def _sum(
    build: Function, values: Sequence[str], dtype: tf.DType, place: int
) -> str:
    if len(values) == 1:
        return values[0]
    attributes = {"N": len(values), "T": dtype}
    return build.op("AddN", list(values), attributes, place)[0]


def _stacked(
    build: Function,
    value: str,
    tensor: Tensor,
    axis: int,
    missing: int,
    dtype: tf.DType,
    place: int,
) -> str:
    """A part with `missing` zeros more along an axis, and a new first axis."""
    if missing:
        zero = build.sizes.scalar(0)
        paddings = [zero] * (2 * len(tensor.shape))
        paddings[2 * axis + 1] = build.sizes.scalar(missing)
        value = padded(build, value, paddings, dtype, place)
    first = build.constant(0, tf.int32, HOST)
    attributes = {"T": dtype, "Tdim": tf.int32}
    return build.op("ExpandDims", [value, first], attributes, place)[0]


def _unstacked(
    build: Function,
    stack: str,
    axis: int,
    sizes: Sequence[int],
    dtype: tf.DType,
    place: int,
) -> str:
    """Concatenates a stack of padded parts, without the padding."""
    attributes = {"num": len(sizes), "T": dtype, "axis": 0}
    parts = build.op("Unpack", [stack], attributes, place)
    for number, (part, size) in enumerate(zip(parts, sizes)):
        missing = max(sizes) - size
        if missing:
            cut = split(build, part, axis, [size, missing], dtype, place)
            parts[number] = cut[0]
    return build.concat(parts, axis, dtype, place)
