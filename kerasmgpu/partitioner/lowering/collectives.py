"""Communication by TensorFlow's collectives: GPUs, or several processes.

Every process writes the same function for its own replicas. Group and instance
keys of collectives are counted in the order of writing, which is the same in
all processes; collectives run in this order on every device.
"""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.ir.instructions import value
from kerasmgpu.partitioner.ir.sent_types import SENT_AS, has_parts, type_to_send
from kerasmgpu.partitioner.lowering.function_writer import Function, References
from kerasmgpu.partitioner.lowering.lengths import (
    instance_of,
    padded,
    padded_length,
    product,
    reduced,
)
from kerasmgpu.partitioner.lowering.replicas import Together
from kerasmgpu.partitioner.lowering.variable_collectives import (
    Keys,
    VariableCollectives,
)
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import COUNTS, Rows, Sharded
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.definitions import Attributes, node_name
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.places import HOST, OnEachPlace
from kerasmgpu.partitioner.step.sizes import SizeLike

BYTES_PER_PACK = 25 << 20
"""Bytes of a pack of values that are reduced as one, so that sending a pack
overlaps computing the next (the default of PyTorch's `DistributedDataParallel`,
Li et al., VLDB 2020)."""

LARGE = BYTES_PER_PACK >> 3
"""Bytes from which on a value is reduced by itself: packing and unpacking it
copies it, which takes longer than starting a collective."""

ALL_TO_ALL_BYTES = 1 << 16
"""Bytes up to which workers reduce by an all-to-all: one round, in which each
worker sends every other its whole value. A ring sends fewer bytes, in
2 (workers - 1) rounds."""

_MERGE = {"sum": "Add", "max": "Max", "min": "Min", "all": "Min", "any": "Max"}

_groups = itertools.count(70_000)


class CollectiveReplicas(VariableCollectives):
    """Replicas that communicate by TensorFlow's collectives.

    Args:
        mesh: Their `mesh.Mesh`.
        hint: `"auto"`, `"nccl"` or `"ring"`: the all-reduce between replicas.
        timeout_seconds: Seconds after which a collective fails; `None`: never.
        all_gather: Function that takes a list of floats, of one length on all
            workers, and returns all lists, `[workers, floats]`. `None`: workers
            don't compare the collectives that they write.
        together: See `Replicas`.
    """

    def __init__(
        self,
        mesh: Mesh,
        hint: str = "auto",
        timeout_seconds: float | None = None,
        all_gather: Callable[[Sequence[float]], np.ndarray] | None = None,
        together: Together | None = None,
    ) -> None:
        mesh = dataclasses.replace(
            mesh,
            sums_are_copies=not mesh.reduces_on_host_first,
            gathers_are_copies=mesh.num_workers == 1,
        )
        super().__init__(mesh, together)
        self.hint = hint
        self._timeout_seconds = timeout_seconds
        self._all_gather = all_gather

    # Rows --------------------------------------------------------------------

    def shares_of_counts(
        self, build: Function, rows: Rows, counts: Sequence[str]
    ) -> list[tuple[str, str]]:
        if self.mesh.num_workers == 1:
            return super().shares_of_counts(build, rows, counts)
        starts = build.op(
            "Cumsum",
            [self._all_counts(build, rows), build.sizes.scalar(0)],
            {
                "T": tf.int32,
                "Tidx": tf.int32,
                "exclusive": True,
                "reverse": False,
            },
            HOST,
        )[0]
        return [
            (build.sizes.entry(starts, self.mesh.first + number), count)
            for number, count in enumerate(counts)
        ]

    def total_rows(self, build: Function, rows: Rows) -> str:
        if self.mesh.num_workers == 1:
            return super().total_rows(build, rows)
        return reduced(build, "Sum", self._all_counts(build, rows))

    def _all_counts(self, build: Function, rows: Rows) -> str:
        """Numbers of rows of all replicas of the job, as a vector."""
        tensor = cast(Tensor, self._passed(build, rows))
        return build.references(value(tensor, COUNTS))[0]

    # Communication -----------------------------------------------------------

    def gathered_counts(self, build: Function, tensor: Tensor) -> str:
        own = super().gathered_counts(build, tensor)
        mesh = self.mesh
        behind = mesh.total - mesh.first - mesh.num
        paddings = build.constant([[mesh.first, behind]], tf.int32, HOST)
        attributes = {"T": tf.int32, "Tpaddings": tf.int32}
        table = build.op("Pad", [own, paddings], attributes, HOST)[0]
        return self._reduced_over_hosts(build, table, tf.int32, mesh.total)

    def gather(
        self,
        build: Function,
        tensor: Tensor,
        sharded: Sharded,
        parts: Sequence[str],
    ) -> References:
        if self.mesh.num_workers == 1:
            return OnEachPlace(
                lambda place: self.joined(
                    build, tensor, sharded, parts, max(place, 0)
                )
            )
        if has_parts(self.mesh, tensor, sharded):
            return self.gathered_parts(build, tensor, sharded, parts)
        place = 0 if tensor.dtype.is_floating else HOST
        own = self.joined(build, tensor, sharded, parts, place)
        return build.same(self._gathered(build, tensor, sharded, own, place))

    def worker_size(self, build: Function, sharded: Sharded) -> str:
        if self.mesh.num_workers == 1:
            return super().worker_size(build, sharded)
        local = [build.sizes.local(sharded, n) for n in range(self.mesh.num)]
        return functools.reduce(build.sizes.plus, local)

    def _gathered(
        self,
        build: Function,
        tensor: Tensor,
        sharded: Sharded,
        own: str,
        place: int,
    ) -> str:
        """Rows of all workers: the sum of each worker's rows padded by zeros."""
        sent_type = type_to_send(tensor)
        rows = sizes.product([sharded.rows.size, sharded.inner])
        front, behind = self._around(build, tensor, sharded, own)
        outer = build.sizes.scalar(sharded.outer)
        shape = build.sizes.packed(
            [
                build.sizes.times(product(build, front), outer),
                build.sizes.scalar(-1),
                product(build, behind),
            ]
        )
        blocks = build.reshape(own, shape, tensor.dtype, place)
        blocks = build.cast(blocks, tensor.dtype, sent_type, place)
        start, _ = build.sizes.bounds(sharded, 0)
        last_start, last_count = build.sizes.bounds(sharded, self.mesh.num - 1)
        end = build.sizes.plus(last_start, last_count)
        after = build.sizes.minus(build.sizes.scalar(rows), end)
        zero = build.sizes.scalar(0)
        paddings = [zero, zero, start, after, zero, zero]
        blocks = padded(build, blocks, paddings, sent_type, place)
        elements = _num_elements([tensor])
        whole = self._reduced_over_hosts(build, blocks, sent_type, elements)
        whole = build.cast(whole, sent_type, tensor.dtype, place)
        own_axis = build.sizes.packed([build.sizes.scalar(sharded.size)])
        shape = build.concat([front, own_axis, behind], 0, tf.int32, HOST)
        return build.reshape(whole, shape, tensor.dtype, place)

    def _around(
        self, build: Function, tensor: Tensor, sharded: Sharded, own: str
    ) -> list[str]:
        """Sizes of the axes before the sharded one and after it: two vectors."""
        axis = sharded.axis
        if tensor.shape is not None:
            vectors = [tensor.shape[:axis], tensor.shape[axis + 1 :]]
            return [
                build.sizes.vector(cast(tuple[SizeLike, ...], vector))
                for vector in vectors
            ]
        shape = build.sizes.shape(own, tensor.dtype)
        zero, one, here, next_one = (
            build.constant([number], tf.int32, HOST)
            for number in (0, 1, axis, axis + 1)
        )
        cut = (tf.int32, HOST)
        return [
            build.strided_slice(shape, zero, here, one, *cut),
            build.strided_slice(shape, next_one, zero, one, *cut, end_mask=1),
        ]

    def reduce(
        self, build: Function, tensors: Sequence[Tensor], by: str
    ) -> Sequence[References]:
        if self.mesh.total == 1:
            return [build.parts(tensor) for tensor in tensors]
        parts: list[Sequence[str]]
        if self.mesh.reduces_on_host_first:
            parts = [[refs[0]] for refs in super().reduce(build, tensors, by)]
        else:
            parts = [build.parts(tensor) for tensor in tensors]
        totals: dict[int, list[str]] = {}
        for numbers in _packs(tensors):
            pack = [tensors[number] for number in numbers]
            own = [parts[number] for number in numbers]
            totals.update(zip(numbers, self._reduce_pack(build, pack, own, by)))
        return [totals[number] for number in range(len(tensors))]

    def _reduce_pack(
        self,
        build: Function,
        tensors: Sequence[Tensor],
        parts: Sequence[Sequence[str]],
        by: str,
    ) -> list[list[str]]:
        """All-reduces tensors of one type as one vector.

        Args:
            build: The `Function`.
            tensors: The tensors.
            parts: For each, references to its parts, one per place.
            by: See `reduce`.

        Returns:
            For each tensor, references by replica.
        """
        dtype = tensors[0].dtype
        sent_type = type_to_send(tensors[0])
        packs: list[str] = []
        shapes: list[list[str]] = []
        for place in range(len(parts[0])):
            flat = [
                build.cast(references[place], dtype, sent_type, place)
                for references in parts
            ]
            if len(flat) > 1:
                shapes.append([build.sizes.shape(r, sent_type) for r in flat])
                flat = [build.flat(ref, sent_type, place) for ref in flat]
            packs.append(build.concat(flat, 0, sent_type, place))
        totals = self._reduced_over_replicas(
            build, packs, sent_type, _MERGE[by], _num_elements(tensors)
        )
        results: list[list[str]] = [[] for _ in tensors]
        for place, total in enumerate(totals):
            own = [total]
            if len(tensors) > 1:
                own = self._unpacked(
                    build, total, shapes[place], sent_type, place
                )
            for result, part in zip(results, own):
                result.append(build.cast(part, sent_type, dtype, place))
        if self.mesh.reduces_on_host_first:
            return [build.same(result[0]) for result in results]
        return results

    def _unpacked(
        self,
        build: Function,
        total: str,
        shapes: Sequence[str],
        dtype: tf.DType,
        place: int,
    ) -> list[str]:
        """Splits a pack into its tensors."""
        lengths = [product(build, shape) for shape in shapes]
        parts = build.op(
            "SplitV",
            [total, build.sizes.packed(lengths), build.sizes.scalar(0)],
            {"num_split": len(shapes), "T": dtype, "Tlen": tf.int32},
            place,
        )
        return [
            build.reshape(part, shape, dtype, place)
            for part, shape in zip(parts, shapes)
        ]

    def agreed(
        self, build: Function, references: References, tensor: Tensor
    ) -> References:
        """Broadcasts a whole value from the first worker.

        Kernels that sum in an order of their own may round otherwise on other
        workers; updates of variables must be equal to the last bit.
        """
        dtype = tensor.dtype
        sent_type = SENT_AS.get(dtype, dtype)
        place = build.place_of(references[0])
        value = build.cast(references[0], dtype, sent_type, place)
        if self.mesh.first:
            value = build.op("ZerosLike", [value], {"T": sent_type}, place)[0]
        elements = _num_elements([tensor])
        value = self._reduced_over_hosts(build, value, sent_type, elements)
        return build.same(build.cast(value, sent_type, dtype, place))

    def agree_to_assign(self, build: Function, computed: str) -> str:
        if self.mesh.num_workers == 1:
            return computed
        zero = build.constant(0, tf.int32, HOST)
        (own,) = build.op(
            "Identity", [zero], {"T": tf.int32}, HOST, "computed", [computed]
        )
        total = self._reduced_over_hosts(build, own, tf.int32, 1)
        build.op("NoOp", [], {}, HOST, "agreed", [node_name(total)])
        build.writer.effects.append(build.writer.last)
        return build.writer.last

    def _reduced_over_replicas(
        self,
        build: Function,
        references: Sequence[str],
        dtype: tf.DType,
        merge: str,
        elements: int | None,
    ) -> list[str]:
        """All-reduces one value per replica over all replicas of the job.

        Args:
            build: The `Function`.
            references: The values by replica; one for all replicas where the
                worker has reduced over them (`reduces_on_host_first`).
            dtype: Their type.
            merge: `"Add"`, `"Max"` or `"Min"`.
            elements: Elements of each; `None` for a dynamic shape.

        Returns:
            References to the result, as many as are passed.
        """
        if self.mesh.reduces_on_host_first:
            (own,) = references
            return [
                self._reduced_over_hosts(build, own, dtype, elements, merge)
            ]
        if build.clock is not None:
            build.clock.ready(references[0], dtype)
        keys = self.next_keys(
            build, "replicas", self.mesh.total, merge, elements, dtype
        )
        write = self._padded_reduce if elements is None else self._reduce_op
        totals = [
            write(build, reference, dtype, merge, place, keys, self.hint)
            for place, reference in enumerate(references)
        ]
        build.writer.keep_all_or_none(list(map(node_name, totals)))
        if build.clock is not None:
            build.clock.done(totals[0], dtype)
        return totals

    def _reduced_over_hosts(
        self,
        build: Function,
        reference: str,
        dtype: tf.DType,
        elements: int | None,
        merge: str = "Add",
    ) -> str:
        """All-reduces one value per worker over the workers' hosts."""
        keys = self.next_keys(
            build, "hosts", self.mesh.num_workers, merge, elements, dtype
        )
        if build.clock is not None:
            build.clock.ready(reference, dtype)
        if elements is not None and elements * dtype.size <= ALL_TO_ALL_BYTES:
            total = self._all_to_all_reduce(
                build, reference, dtype, merge, keys
            )
        else:
            write = self._padded_reduce if elements is None else self._reduce_op
            total = write(build, reference, dtype, merge, HOST, keys, "ring")
        if build.clock is not None:
            build.clock.done(total, dtype)
        return total

    def _all_to_all_reduce(
        self,
        build: Function,
        value: str,
        dtype: tf.DType,
        merge: str,
        keys: Keys,
    ) -> str:
        """An all-to-all of whole values, merged by each worker in one order."""
        many = {"N": self.mesh.num_workers, "T": dtype}
        copies = [value] * self.mesh.num_workers
        sent = build.op("Pack", copies, {**many, "axis": 0}, HOST)[0]
        received = self.collective_op(
            build, "CollectiveAllToAllV2", sent, {"T": dtype}, HOST, keys
        )
        attributes = {"num": self.mesh.num_workers, "T": dtype, "axis": 0}
        values = build.op("Unpack", [received], attributes, HOST)
        if merge == "Add":
            return build.op("AddN", values, many, HOST)[0]
        type = "Maximum" if merge == "Max" else "Minimum"
        return functools.reduce(
            lambda one, other: build.op(type, [one, other], {"T": dtype}, HOST)[
                0
            ],
            values,
        )

    def next_keys(
        self,
        build: Function,
        members: str,
        size: int,
        merge: str,
        elements: int | None,
        dtype: tf.DType,
    ) -> Keys:
        """Group and instance keys of a new collective, which it records.

        Each function has groups of its own; loops and branches share those of
        the enclosing function.

        Args:
            build: The `Function`.
            members: `"replicas"` or `"hosts"`.
            size: Number of members.
            merge: See `_reduced_over_replicas`.
            elements: See `_reduced_over_replicas`.
            dtype: Type of the values.
        """
        while build.parent is not None:
            build = build.parent
        recorded = build.keep("collectives", list)
        recorded.append((members, merge, elements, dtype.name))
        group, instances = build.keep(
            ("keys", members), lambda: (next(_groups), itertools.count(1))
        )
        return Keys(size, group, next(instances))

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

    def compare(self, build: Function, name: str) -> None:
        collectives = build.keep("collectives", list)
        mesh = self.mesh
        if self._all_gather is None or mesh.num_workers == 1 or not collectives:
            return  # No collectives: nothing to compare between workers.
        hashes = [_hash(collective) for collective in collectives]
        with tf.init_scope():
            summaries = self._all_gather([len(hashes), _hash(hashes)])
            if np.all(summaries == summaries[0]):
                return
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

    def _padded_reduce(
        self,
        build: Function,
        value: str,
        dtype: tf.DType,
        merge: str,
        place: int,
        keys: Keys,
        hint: str,
    ) -> str:
        """Writes an all-reduce of a value of dynamic shape; see `lengths.py`."""
        number = build.sizes
        shape = number.shape(value, dtype)
        length = product(build, shape)
        longer, index = padded_length(build, length)
        rest = number.minus(longer, length)
        zero, one = number.scalar(0), number.scalar(1)
        flat = build.flat(value, dtype, place)
        flat = padded(build, flat, [zero, rest], dtype, place)
        keys = keys._replace(
            instance=instance_of(build, cast(int, keys.instance), index)
        )
        total = self._reduce_op(build, flat, dtype, merge, place, keys, hint)
        begin, end, strides = (
            number.packed([bound]) for bound in (zero, length, one)
        )
        total = build.strided_slice(total, begin, end, strides, dtype, place)
        return build.reshape(total, shape, dtype, place)

    def _reduce_op(
        self,
        build: Function,
        value: str,
        dtype: tf.DType,
        merge: str,
        place: int,
        keys: Keys,
        hint: str,
    ) -> str:
        """Writes an all-reduce of a value of static shape."""
        attributes = {
            "T": dtype,
            "merge_op": merge,
            "final_op": "Id",
            "communication_hint": hint,
            "max_subdivs_per_device": -1,
        }
        return self.collective_op(
            build, "CollectiveReduceV2", value, attributes, place, keys
        )

    def collective_op(
        self,
        build: Function,
        type: str,
        value: str,
        attributes: Attributes,
        place: int,
        keys: Keys,
    ) -> str:
        """Writes a collective operation; returns its output.

        GPUs have no collectives of int32 (TensorFlow 2.18 to 2.21): values are
        sent as int64.

        Args:
            build: The `Function`.
            type: Type of the operation.
            value: Its input.
            attributes: Attributes besides those of all collectives.
            place: Its place.
            keys: See `next_keys`.
        """
        dtype = attributes["T"]
        if dtype == tf.int32 and place != HOST and not self.mesh.shares_memory:
            value = build.cast(value, dtype, tf.int64, place)
            attributes = {**attributes, "T": tf.int64}
            total = self.collective_op(
                build, type, value, attributes, place, keys
            )
            return build.cast(total, tf.int64, dtype, place)
        scalars = [
            build.constant(key, tf.int32, HOST) if isinstance(key, int) else key
            for key in keys
        ]
        attributes = {
            "timeout_seconds": float(self._timeout_seconds or 0),
            "is_stateless": False,
            "Nordering_token": 0,
            "communication_hint": "ring",
            **attributes,
        }
        controls = build.before_collective(place)
        controls.append(build.keep("concurrent", lambda: _concurrent(build)))
        outputs = build.op(
            type,
            [value, *scalars],
            attributes,
            place,
            f"replica_{place}/all_reduce"
            if place != HOST
            else "host/all_reduce",
            controls,
        )
        build.note_collective(place, build.writer.last)
        return outputs[0]


def _concurrent(build: Function) -> str:
    """Name of a `Switch`, which makes a function run on several threads.

    TensorFlow (2.18 to 2.21) runs a function without control flow and without
    transfers between devices on one thread: it would wait in the first device's
    collective, and never start that of the second.
    """
    true = build.constant(True, tf.bool, HOST)
    build.op("Switch", [true, true], {"T": tf.bool}, HOST)
    return build.writer.last


def _num_elements(tensors: Sequence[Tensor]) -> int | None:
    """Sum of the tensors' elements; `None` if one is empty or of dynamic shape."""
    if not all(0 < tensor.num_bytes < float("inf") for tensor in tensors):
        return None
    return sum(cast(int, tensor.num_elements) for tensor in tensors)


def _hash(value: object) -> int:
    """A hash that is the same in all processes, and exact as a float64."""
    digest = hashlib.sha256(repr(value).encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _packs(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Groups tensors that are reduced as one vector; returns their indices."""
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
