"""Communication by TensorFlow's collectives: GPUs, or several processes.

Every process writes the same function for its own replicas. Group and instance
keys of collectives are counted in the order of writing, which is the same in
all processes. Collectives run in this order on every device, or, with
micro-batches, in the order of turns (`turns.py`).
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import cast

from kerasmgpu.partitioner.ir.instructions import Value, value
from kerasmgpu.partitioner.ir.sent_types import (
    GATHERED_AS,
    SENT_AS,
    has_parts,
    type_to_send,
)
from kerasmgpu.partitioner.lowering.communicators import Communicator, Options
from kerasmgpu.partitioner.lowering.function_writer import Function, References
from kerasmgpu.partitioner.lowering.packing import (
    Parts,
    num_elements,
    packed,
    packs_of_type,
    padded,
    split,
    unpacked,
)
from kerasmgpu.partitioner.lowering.replicas import (
    Agreement,
    Replicas,
    Together,
)
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import COUNTS, Rows, Sharded
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.places import HOST, OnEachPlace
from kerasmgpu.partitioner.step.references import Reference
from kerasmgpu.partitioner.step.sizes import SizeLike

_OPTIONS = Options()

_MERGE = {"sum": "Add", "max": "Max", "min": "Min", "all": "Min", "any": "Max"}


class CollectiveReplicas(Replicas):
    """Replicas that communicate by TensorFlow's collectives.

    If a worker's devices share memory, it first reduces over its replicas
    there, and the workers' hosts communicate (`Mesh.reduces_on_host_first`);
    otherwise all replicas do.

    Args:
        mesh: Their `mesh.Mesh`; `sums_are_copies` and `gathers_are_copies` are
            set here.
        options: `communicators.Options`.
        agreement, together: See `Replicas`.
    """

    def __init__(
        self,
        mesh: Mesh,
        options: Options = _OPTIONS,
        agreement: Agreement | None = None,
        together: Together | None = None,
    ) -> None:
        mesh = dataclasses.replace(
            mesh,
            sums_are_copies=not mesh.reduces_on_host_first,
            gathers_are_copies=mesh.num_workers == 1,
        )
        super().__init__(mesh, agreement, together)
        self.options = options

    @property
    def members(self) -> Communicator:
        """The members that send: hosts, or replicas."""
        by_hosts = self.mesh.reduces_on_host_first
        return self._hosts if by_hosts else self._devices

    @property
    def _hosts(self) -> Communicator:
        size, own, places = self.mesh.num_workers, [self.mesh.worker], [HOST]
        return Communicator("hosts", size, own, places, self.options)

    @property
    def _devices(self) -> Communicator:
        first, num = self.mesh.first, self.mesh.num
        own, places = range(first, first + num), range(num)
        size = self.mesh.total
        return Communicator("replicas", size, own, places, self.options)

    def on(self, mesh: Mesh) -> Replicas:
        # Inside of a worker, replicas read each other's memory.
        is_inside = self.mesh.num_workers > 1 == mesh.num_workers
        if is_inside and mesh.shares_memory:
            return Replicas(mesh)
        return super().on(mesh)

    # Rows --------------------------------------------------------------------

    def shares_of_counts(
        self, build: Function, rows: Rows, counts: Sequence[Reference]
    ) -> list[tuple[Reference, Reference]]:
        if self.mesh.num_workers == 1:
            return super().shares_of_counts(build, rows, counts)
        own, axis = self._all_counts(build, rows), build.sizes.scalar(0)
        starts = build.sizes.op("Cumsum", own, axis, exclusive=True)
        return [
            (build.sizes.entry(starts, self.mesh.first + number), count)
            for number, count in enumerate(counts)
        ]

    def total_rows(self, build: Function, rows: Rows) -> Reference:
        if self.mesh.num_workers == 1:
            return super().total_rows(build, rows)
        return build.sizes.reduced("Sum", self._all_counts(build, rows))

    def _all_counts(self, build: Function, rows: Rows) -> Reference:
        """Returns the vector that a `GatherCounts` has gathered for these rows."""
        tensor = cast(Tensor, self._passed(build, rows))
        return build.references(value(tensor, COUNTS))[0]

    def gathered_counts(self, build: Function, tensor: Tensor) -> Reference:
        return self._of_all(build, super().gathered_counts(build, tensor), 1)

    def _of_all(self, build: Function, own: Reference, rank: int) -> Reference:
        """All-gathers sizes of this worker's replicas (`own`) from all workers.

        Returns:
            Reference to `[replicas]`; to `[replicas, replicas]` if `rank` is 2.
        """
        mesh = self.mesh
        behind = mesh.total - mesh.first - mesh.num
        paddings = [[mesh.first, behind], [0, 0]][:rank]
        table = build.sizes.op("Pad", own, build.constant(paddings))
        return self._over_hosts(build, table, mesh.total**rank)

    def _over_hosts(
        self, build: Function, own: Reference, elements: int | None
    ) -> Reference:
        """Sums one value per worker; see `Communicator.all_reduce`."""
        return self._hosts.all_reduce(build, [own], elements)[0]

    # All-gather --------------------------------------------------------------

    def gather(
        self, build: Function, one: Value, parts: Sequence[Reference]
    ) -> References:
        if self.mesh.num_workers == 1:
            return OnEachPlace(
                lambda place: self.joined(build, one, parts, max(place, 0))
            )
        if has_parts(self.mesh, one):
            return self._gathered_parts(build, one, parts)
        place = 0 if one.tensor.dtype.is_floating else HOST
        own = self.joined(build, one, parts, place)
        return build.same(self._gathered_rows(build, one, own, place))

    def _gathered_parts(
        self, build: Function, one: Value, parts: Sequence[Reference]
    ) -> list[Reference]:
        """All-gathers a variable's parts; see `sent_types.has_parts`."""
        members, sent_type = self.members, GATHERED_AS[one.tensor.dtype]
        pack = self._parts_of(one)
        if members.name == "hosts":
            parts = [build.concat(parts, one.sharded.axis, HOST)]
        keys = members.keys(build, "Gather", pack.num_sent, sent_type)
        values = (
            pack.to_send(build, part, own, sent_type, place)
            for part, own, place in zip(parts, members.own, members.places)
        )
        gathered = members.all_gather(build, values, keys)
        whole = [pack.joined(build, one) for one in gathered]
        return build.same(whole[0]) if members.name == "hosts" else whole

    def _gathered_rows(
        self, build: Function, one: Value, own: Reference, place: int
    ) -> Reference:
        """All-gathers rows by a sum: each worker pads its own rows with zeros."""
        number, tensor, sharded = build.sizes, one.tensor, one.sharded
        rows = sizes.product([sharded.rows.size, sharded.inner])
        front, behind = self._around(build, one, own)
        shape = number.packed(
            [
                number.times(
                    number.product(front), number.scalar(sharded.outer)
                ),
                number.scalar(-1),
                number.product(behind),
            ]
        )
        blocks = build.reshape(own, shape, place)
        blocks = build.cast(blocks, type_to_send(tensor))
        start, _ = number.bounds(sharded, 0)
        end = number.plus(*number.bounds(sharded, self.mesh.num - 1))
        after = number.minus(number.scalar(rows), end)
        zero = number.scalar(0)
        blocks = padded(build, blocks, [zero, zero, start, after, zero, zero])
        whole = self._over_hosts(build, blocks, num_elements([tensor]))
        whole = build.cast(whole, tensor.dtype, place)
        own_axis = number.packed([number.scalar(sharded.size)])
        shape = build.concat([front, own_axis, behind], 0, HOST)
        return build.reshape(whole, shape, place)

    def _around(
        self, build: Function, one: Value, own: Reference
    ) -> list[Reference]:
        """Returns two vectors of sizes: of axes before the sharded one, and after.

        Args:
            own: Reference to this worker's rows of it.
        """
        axis, known = one.sharded.axis, one.tensor.shape
        if known is not None:
            vectors = [known[:axis], known[axis + 1 :]]
            return [
                build.sizes.vector(cast(tuple[SizeLike, ...], vector))
                for vector in vectors
            ]
        shape = build.sizes.shape(own)
        zero, step, here, behind = map(
            build.constant, ([0], [1], [axis], [axis + 1])
        )
        return [
            build.strided_slice(shape, [zero, here, step], HOST),
            build.strided_slice(shape, [behind, zero, step], HOST, end_mask=1),
        ]

    def worker_size(self, build: Function, sharded: Sharded) -> Reference:
        if self.mesh.num_workers == 1:
            return super().worker_size(build, sharded)
        local = [build.sizes.local(sharded, n) for n in range(self.mesh.num)]
        return functools.reduce(build.sizes.plus, local)

    # All-reduce, reduce-scatter ----------------------------------------------

    def reduce(
        self,
        build: Function,
        tensors: Sequence[Tensor],
        parts: Sequence[Sequence[Reference]],
        by: str,
    ) -> Sequence[References]:
        if self.mesh.total == 1:
            return parts
        if self.mesh.reduces_on_host_first:
            own = super().reduce(build, tensors, parts, by)
            parts = [[references[0]] for references in own]
        totals: dict[int, list[Reference]] = {}
        for numbers in packs_of_type(tensors):
            pack = [tensors[number] for number in numbers]
            sent = [parts[number] for number in numbers]
            sums = self._reduce_pack(build, pack, sent, by)
            totals.update(zip(numbers, sums))
        if self.mesh.reduces_on_host_first:
            return [build.same(totals[n][0]) for n in range(len(tensors))]
        return [totals[number] for number in range(len(tensors))]

    def _reduce_pack(
        self,
        build: Function,
        tensors: Sequence[Tensor],
        parts: Sequence[Sequence[Reference]],
        by: str,
    ) -> list[list[Reference]]:
        """All-reduces tensors of one type as one vector.

        Args:
            parts: For each, references by member of this process.

        Returns:
            For each tensor, references by member of this process.
        """
        dtype, sent_type = tensors[0].dtype, type_to_send(tensors[0])
        vectors, unpackers = [], []
        for place in range(len(parts[0])):
            own = [build.cast(one[place], sent_type, place) for one in parts]
            vector, unpack = packed(build, own, place)
            vectors.append(vector)
            unpackers.append(unpack)
        elements = num_elements(tensors)
        totals = self.members.all_reduce(build, vectors, elements, _MERGE[by])
        results: list[list[Reference]] = [[] for _ in tensors]
        for place, (total, unpack) in enumerate(zip(totals, unpackers)):
            for result, part in zip(results, unpack(total)):
                result.append(build.cast(part, dtype, place))
        return results

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
            pack = [self._parts_of(sums[n]) for n in numbers]
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
        pack: Sequence[Parts],
        values: Sequence[Sequence[Reference]],
    ) -> list[list[Reference]]:
        """Reduce-scatters tensors of one type by one all-to-all.

        Each member sends to every other the receiver's rows, as one vector, and
        adds up the vectors that it receives in the order of the members.

        Returns:
            For each tensor, references by member of this process.
        """
        members, dtype = self.members, values[0][0].dtype
        if members.name == "hosts":
            values = [[_sum(build, own, HOST)] for own in values]
        lengths = [one.longest for one in pack]
        keys = members.keys(build, "AddScattered", sum(lengths), dtype)
        sent = (
            build.concat(
                [
                    one.rows_to_send(build, own[number], place)
                    for one, own in zip(pack, values)
                ],
                1,
            )
            for number, place in enumerate(members.places)
        )
        received = members.all_to_all(build, sent, keys)
        results: list[list[Reference]] = [[] for _ in pack]
        for rows, own in zip(received, members.own):
            total = _sum(build, build.op("Unpack", [rows], num=members.size))
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

    def _parts_of(self, one: Value) -> Parts:
        """Returns the members' parts of a value that is sharded as a variable."""
        by_worker = self.mesh.reduces_on_host_first
        return Parts(one, self._sizes(one.sharded, by_worker))

    def _sizes(self, sharded: Sharded, by_worker: bool = False) -> list[int]:
        """Returns each replica's, or worker's, elements along the sharded axis."""
        inner, rows = cast(int, sharded.inner), cast(int, sharded.rows.size)
        return [n * inner for n in self.mesh.part_sizes(rows, by_worker)]

    # Exchanges of rows -------------------------------------------------------

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
        sent_type, replicas = SENT_AS.get(dtype, dtype), self._devices
        keys = replicas.keys(build, "Exchange", None, sent_type)
        longest = number.reduced("Max", build.flat(counts, HOST))
        length, keys = replicas.padded_length(build, longest, keys)
        zero = number.scalar(0)

        def to_send(piece: Reference) -> Reference:
            rest = number.minus(length, number.size(piece))
            around = [zero, rest] + [zero] * (2 * rank - 2)
            return padded(build, build.cast(piece, sent_type), around)

        sent = (build.op("Pack", list(map(to_send, row)))[0] for row in pieces)
        received = replicas.all_to_all(build, sent, keys)
        begin, one = (number.packed([number.scalar(n)]) for n in (0, 1))
        results = []
        for own, rows in zip(replicas.own, received):
            cut = []
            for other, piece in enumerate(
                build.op("Unpack", [rows], num=replicas.size)
            ):
                entry = (own, other) if is_back else (other, own)
                end = number.packed([number.entry(counts, *entry)])
                piece = build.strided_slice(piece, [begin, end, one])
                cut.append(build.cast(piece, dtype))
            results.append(cut)
        return results

    # Agreement ---------------------------------------------------------------

    def agreed(
        self, build: Function, references: References, tensor: Tensor
    ) -> References:
        """Broadcasts a whole value from the first worker.

        Kernels that sum in an order of their own can round differently on each
        worker; updates of variables must be equal to the last bit.
        """
        place = build.place_of(references[0])
        sent_type = SENT_AS.get(tensor.dtype, tensor.dtype)
        value = build.cast(references[0], sent_type, place)
        is_first = self.mesh.worker == 0
        if build.program.form.is_compiled:
            value = build.value_if(is_first, value, place)
        elif not is_first:
            value = build.op("ZerosLike", [value], place)[0]
        value = self._over_hosts(build, value, num_elements([tensor]))
        return build.same(build.cast(value, tensor.dtype, place))

    def agree_to_assign(self, build: Function, computed: str) -> str:
        if self.mesh.num_workers == 1:
            return computed
        zero = build.constant(0)
        (own,) = build.op("Identity", [zero], HOST, "computed", [computed])
        total = self._over_hosts(build, own, 1)
        build.op("NoOp", [], HOST, "agreed", [total.node])
        build.writer.effects.append(build.writer.last)
        return build.writer.last


def _sum(
    build: Function, values: Sequence[Reference], place: int | None = None
) -> Reference:
    if len(values) == 1:
        return values[0]
    return build.op("AddN", values, place)[0]
