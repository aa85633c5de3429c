"""Communication by TensorFlow's collectives: GPUs, or several processes.

Every process writes the same function for its own replicas. Group and instance
keys of collectives are counted in the order of writing, which is the same in
all processes. Collectives run in this order on every device, or, with
micro-batches, in the order of turns (`turns.py`).
"""

import functools
import hashlib
from collections.abc import Sequence
from typing import cast

import numpy as np
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.ir.instructions import Value, value
from kerasmgpu.partitioner.ir.sent_types import (
    BYTES_PER_PACK,
    LARGE,
    SENT_AS,
    has_parts,
    type_to_send,
)
from kerasmgpu.partitioner.lowering.function_writer import Function, References
from kerasmgpu.partitioner.lowering.lengths import padded, product, reduced
from kerasmgpu.partitioner.lowering.replicas import unpacked
from kerasmgpu.partitioner.lowering.variable_collectives import (
    VariableCollectives,
)
from kerasmgpu.partitioner.rules.kinds import COUNTS, Rows, Sharded
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.places import HOST, OnEachPlace
from kerasmgpu.partitioner.step.references import Reference
from kerasmgpu.partitioner.step.sizes import SizeLike

_MERGE = {"sum": "Add", "max": "Max", "min": "Min", "all": "Min", "any": "Max"}


class CollectiveReplicas(VariableCollectives):
    """Replicas that communicate by TensorFlow's collectives; see `Collectives`."""

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
        return reduced(build, "Sum", self._all_counts(build, rows))

    def _all_counts(self, build: Function, rows: Rows) -> Reference:
        """Returns the vector that a `GatherCounts` has gathered for these rows."""
        tensor = cast(Tensor, self._passed(build, rows))
        return build.references(value(tensor, COUNTS))[0]

    # Communication -----------------------------------------------------------

    def gathered_counts(self, build: Function, tensor: Tensor) -> Reference:
        return self._of_all(build, super().gathered_counts(build, tensor), 1)

    def gather(
        self, build: Function, one: Value, parts: Sequence[Reference]
    ) -> References:
        if self.mesh.num_workers == 1:
            return OnEachPlace(
                lambda place: self.joined(build, one, parts, max(place, 0))
            )
        if has_parts(self.mesh, one):
            return self.gathered_parts(build, one, parts)
        place = 0 if one.tensor.dtype.is_floating else HOST
        own = self.joined(build, one, parts, place)
        return build.same(self._gathered(build, one, own, place))

    def worker_size(self, build: Function, sharded: Sharded) -> Reference:
        if self.mesh.num_workers == 1:
            return super().worker_size(build, sharded)
        local = [build.sizes.local(sharded, n) for n in range(self.mesh.num)]
        return functools.reduce(build.sizes.plus, local)

    def _gathered(
        self, build: Function, one: Value, own: Reference, place: int
    ) -> Reference:
        """All-gathers rows by a sum: each worker pads its own rows with zeros."""
        number, tensor, sharded = build.sizes, one.tensor, one.sharded
        rows = sizes.product([sharded.rows.size, sharded.inner])
        front, behind = self._around(build, one, own)
        shape = number.packed(
            [
                number.times(
                    product(build, front), number.scalar(sharded.outer)
                ),
                number.scalar(-1),
                product(build, behind),
            ]
        )
        blocks = build.reshape(own, shape, place)
        blocks = build.cast(blocks, type_to_send(tensor))
        start, _ = number.bounds(sharded, 0)
        end = number.plus(*number.bounds(sharded, self.mesh.num - 1))
        after = number.minus(number.scalar(rows), end)
        zero = number.scalar(0)
        blocks = padded(build, blocks, [zero, zero, start, after, zero, zero])
        whole = self._reduced_over_hosts(build, blocks, _num_elements([tensor]))
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

    def reduce(
        self, build: Function, tensors: Sequence[Tensor], by: str
    ) -> Sequence[References]:
        if self.mesh.total == 1:
            return [build.parts(tensor) for tensor in tensors]
        parts: list[Sequence[Reference]]
        if self.mesh.reduces_on_host_first:
            parts = [[refs[0]] for refs in super().reduce(build, tensors, by)]
        else:
            parts = [build.parts(tensor) for tensor in tensors]
        totals: dict[int, list[Reference]] = {}
        for numbers in _packs(tensors):
            pack = [tensors[number] for number in numbers]
            own = [parts[number] for number in numbers]
            totals.update(zip(numbers, self._reduce_pack(build, pack, own, by)))
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
            parts: For each, references to its parts by place; only one if the
                worker has reduced over its replicas (`reduces_on_host_first`).

        Returns:
            For each tensor, references by replica.
        """
        sent_type = type_to_send(tensors[0])
        packs: list[Reference] = []
        shapes: list[list[Reference]] = []
        for place in range(len(parts[0])):
            flat = [
                build.cast(references[place], sent_type, place)
                for references in parts
            ]
            if len(flat) > 1:
                shapes.append(list(map(build.sizes.shape, flat)))
                flat = [build.flat(reference, place) for reference in flat]
            packs.append(build.concat(flat, 0, place))
        totals = self._reduced_over_replicas(
            build, packs, _MERGE[by], _num_elements(tensors)
        )
        results: list[list[Reference]] = [[] for _ in tensors]
        for place, total in enumerate(totals):
            own = [total]
            if len(tensors) > 1:
                own = self._unpacked(build, total, shapes[place])
            for result, part in zip(results, own):
                result.append(build.cast(part, tensors[0].dtype, place))
        if self.mesh.reduces_on_host_first:
            return [build.same(result[0]) for result in results]
        return results

    def _unpacked(
        self, build: Function, total: Reference, shapes: Sequence[Reference]
    ) -> list[Reference]:
        """Splits a vector into tensors; `shapes` are vectors of their sizes."""
        lengths = [product(build, shape) for shape in shapes]
        parts = unpacked(build, total, lengths)
        return list(map(build.reshape, parts, shapes))

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
        if build.program.is_compiled:
            value = build.value_if(is_first, value, place)
        elif not is_first:
            value = build.op("ZerosLike", [value], place)[0]
        value = self._reduced_over_hosts(build, value, _num_elements([tensor]))
        return build.same(build.cast(value, tensor.dtype, place))

    def agree_to_assign(self, build: Function, computed: str) -> str:
        if self.mesh.num_workers == 1:
            return computed
        zero = build.constant(0)
        (own,) = build.op("Identity", [zero], HOST, "computed", [computed])
        total = self._reduced_over_hosts(build, own, 1)
        build.op("NoOp", [], HOST, "agreed", [total.node])
        build.writer.effects.append(build.writer.last)
        return build.writer.last

    def _reduced_over_replicas(
        self,
        build: Function,
        references: Sequence[Reference],
        merge: str,
        elements: int | None,
    ) -> list[Reference]:
        """All-reduces one value per replica over all replicas of the job.

        Args:
            references: The values by replica; only one if the worker has
                reduced over its replicas (`reduces_on_host_first`).
            merge: `"Add"`, `"Max"` or `"Min"`.
            elements: Elements of each; `None` for a dynamic shape.

        Returns:
            References to the result, as many as are passed.
        """
        if self.mesh.reduces_on_host_first:
            (own,) = references
            return [self._reduced_over_hosts(build, own, elements, merge)]
        if build.clock is not None:
            build.clock.ready(references[0])
        dtype = references[0].dtype
        keys = self.next_keys(build, "replicas", merge, elements, dtype)
        write = self._padded_reduce if elements is None else self._reduce_op
        totals = [
            write(build, reference, merge, place, keys)
            for place, reference in enumerate(references)
        ]
        build.writer.keep_all_or_none(totals)
        if build.clock is not None:
            build.clock.done(totals[0])
        return totals

    def of_first_worker(
        self, shapes: Sequence[Sequence[int | None]]
    ) -> Sequence[Sequence[int | None]]:
        if self._all_gather is None or self.mesh.num_workers == 1:
            return shapes
        flat = [-1 if size is None else size for one in shapes for size in one]
        if not flat:
            return shapes
        with tf.init_scope():
            numbers = iter(self._all_gather(flat)[0])
        agreed = [[int(next(numbers)) for _ in one] for one in shapes]
        return [[None if n < 0 else n for n in one] for one in agreed]

    def common(self, numbers: Sequence[int]) -> set[int]:
        if self._all_gather is None or self.mesh.num_workers == 1:
            return set(numbers)
        with tf.init_scope():
            longest = int(self._all_gather([len(numbers)]).max())
            padding = [-1] * (longest + 1 - len(numbers))
            table = self._all_gather([*numbers, *padding])
        return set.intersection(*(set(map(int, row)) for row in table)) - {-1}

    def compare(self, build: Function, name: str) -> bool:
        collectives = build.keep("collectives", list)
        mesh = self.mesh
        if self._all_gather is None or mesh.num_workers == 1 or not collectives:
            return False  # Nothing to compare between workers.
        hashes = [_hash(collective) for collective in collectives]
        with tf.init_scope():
            summaries = self._all_gather([len(hashes), _hash(hashes)])
            if np.all(summaries == summaries[0]):
                return True
            longest = int(summaries[:, 0].max())
            table = self._all_gather(hashes + [-1] * (longest - len(hashes)))
        number = int(np.argmax(np.any(table != table[0], 0)))
        own = "none"
        if number < len(collectives):
            members, merge, elements, dtype = collectives[number]
            own = f"{merge} of {elements or 'some'} {dtype} between {members}"
        raise InputError(
            "All workers must run the same collectives. Received: "
            f"{name!r}, whose collective number {number + 1} differs between "
            f"workers; on worker {mesh.worker} of {mesh.num_workers} it is: "
            f"{own}. Look for code that depends on the worker's number or on "
            "the order of a set."
        )


def _num_elements(tensors: Sequence[Tensor]) -> int | None:
    """Returns the total of elements; `None` if a shape is empty or dynamic."""
    if not all(0 < tensor.num_bytes < float("inf") for tensor in tensors):
        return None
    return sum(cast(int, tensor.num_elements) for tensor in tensors)


def _hash(value: object) -> int:
    """Returns a hash that is equal in all processes, and exact as a float64."""
    digest = hashlib.sha256(repr(value).encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _packs(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Groups tensors of one type that are reduced as one vector.

    Returns:
        Lists of indices of tensors. A large tensor is alone in its list, and so
        is one of dynamic shape.
    """
    packs: list[list[int]] = []
    last: dict[tf.DType, tuple[list[int], float]] = {}  # With its bytes.
    for number, tensor in enumerate(tensors):
        size = tensor.num_bytes
        if LARGE <= size < float("inf"):
            packs.append([number])
            continue
        pack, num_bytes = last.get(tensor.dtype, (None, 0))
        if pack is None or num_bytes + size > BYTES_PER_PACK:
            pack, num_bytes = [], 0
            packs.append(pack)
        pack.append(number)
        last[tensor.dtype] = pack, num_bytes + size
    return packs
