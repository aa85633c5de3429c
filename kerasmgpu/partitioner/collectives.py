"""Replicas that meet in TensorFlow's collectives: GPUs, or several processes.

Every process writes the same function for its own replicas. Its collectives
have numbers that are given out in the order in which they are written, which is
the same everywhere, and run in this order on every device.
"""

import functools
import hashlib
import itertools

import numpy as np
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner import sizes
from kerasmgpu.partitioner.places import HOST, OnEachPlace
from kerasmgpu.partitioner.replicas import Replicas
from kerasmgpu.partitioner.writing import node_name

BYTES_PER_PACK = 25 << 20
"""Values are summed in packs of about this size, so that a pack can travel
while the next is computed (the default of PyTorch's `DistributedDataParallel`,
Li et al., VLDB 2020)."""

LARGE = BYTES_PER_PACK >> 3
"""Bytes from which on a value travels by itself: packing and unpacking copies
it, and starting a collective costs less than that."""

AT_ONCE = 1 << 16
"""Bytes up to which workers send each other whole values, which each merges by
itself: one message to every other worker, and all at the same time. A ring's are
fewer bytes, in twice as many rounds as there are other workers."""

_MERGE = {"sum": "Add", "max": "Max", "min": "Min", "all": "Min", "any": "Max"}

_TRAVELS_AS = {
    tf.bool: tf.int32,
    tf.int8: tf.int32,
    tf.int16: tf.int32,
    tf.uint8: tf.int32,
    tf.uint16: tf.int32,
    tf.uint32: tf.int64,
}
"""Types that collectives don't know, and those in which their values travel."""

_TRAVELS = {
    tf.bfloat16,
    tf.float16,
    tf.float32,
    tf.float64,
    tf.int32,
    tf.int64,
}

_groups = itertools.count(70_000)

_MOST_COLLECTIVES = 1 << 16
"""More than a function has."""

_LENGTHS = sorted({max(1, (8 + n % 8) << n // 8 >> 3) for n in range(8 * 31)})
"""Lengths that vectors whose length isn't fixed are filled up to."""


class CollectiveReplicas(Replicas):
    """Replicas that send each other values by collectives.

    Args:
        devices: Full names of this process's devices.
        host: Full name of its CPU.
        first: Number of its first replica among all.
        total: Number of all replicas.
        hint: `"auto"`, `"nccl"` or `"ring"`: how gradients are summed.
        timeout_seconds: Seconds after which a collective fails; `None`: never.
        tell: Function that takes a list of floats, of one length on all
            workers, and returns that of each, `[workers, floats]`. `None`:
            nobody looks whether workers write the same collectives.
    """

    def __init__(
        self,
        devices,
        host,
        first=0,
        total=None,
        hint="auto",
        timeout_seconds=None,
        tell=None,
    ):
        super().__init__(devices, host)
        self.first = first
        self.total = total or self.num
        self.hint = hint
        self._timeout_seconds = timeout_seconds
        self._tell = tell
        self.sums_are_copies = not self._meet_on_host
        self.gathers_are_copies = self.num_workers == 1

    @property
    def num_workers(self):
        """Processes of the job."""
        return self.total // self.num

    # Rows --------------------------------------------------------------------

    def shares_of_counts(self, build, counts):
        if self.num_workers == 1:
            return super().shares_of_counts(build, counts)
        table = self._table(build, counts)
        starts = build.op(
            "Cumsum",
            [table, build.sizes.scalar(0)],
            {
                "T": tf.int32,
                "Tidx": tf.int32,
                "exclusive": True,
                "reverse": False,
            },
            HOST,
        )[0]
        return [
            (build.sizes.entry(starts, self.first + number), count)
            for number, count in enumerate(counts)
        ]

    def total_rows(self, build, rows):
        if self.num_workers == 1:
            return super().total_rows(build, rows)
        table = self._table(build, self._given_counts(build, rows))
        return _reduced(build, "Sum", table)

    def _table(self, build, counts):
        """The number of rows of every replica of the job."""
        key = ("table", *counts)
        return build.keep(key, lambda: self._filled_in(build, counts))

    def _filled_in(self, build, counts):
        own = build.sizes.packed(counts)
        behind = self.total - self.first - self.num
        paddings = build.constant([[self.first, behind]], tf.int32, HOST)
        attributes = {"T": tf.int32, "Tpaddings": tf.int32}
        padded = build.op("Pad", [own, paddings], attributes, HOST)[0]
        return self._between_hosts(build, padded, tf.int32, self.total)

    # Communication -----------------------------------------------------------

    def gather(self, build, tensor, sharded):
        parts = build.given(tensor)
        if self.num_workers == 1:
            return OnEachPlace(
                lambda place: self.joined(
                    build, tensor, sharded, parts, max(place, 0)
                )
            )
        place = 0 if tensor.dtype.is_floating else HOST
        own = self.joined(build, tensor, sharded, parts, place)
        return build.same(self._gathered(build, tensor, sharded, own, place))

    def own_size(self, build, sharded):
        if self.num_workers == 1:
            return super().own_size(build, sharded)
        total = None
        for place in range(self.num):
            own = build.sizes.local(sharded, place)
            total = own if total is None else build.sizes.plus(total, own)
        return total

    def _gathered(self, build, tensor, sharded, own, place):
        """The rows of all workers: each fills its own into zeros."""
        travels = _transport(tensor)
        rows = sizes.product([sharded.rows.size, sharded.inner])
        front, behind = self._around(build, tensor, sharded, own)
        outer = build.sizes.scalar(sharded.outer)
        shape = build.sizes.packed(
            [
                build.sizes.times(_product(build, front), outer),
                build.sizes.scalar(-1),
                _product(build, behind),
            ]
        )
        blocks = build.reshape(own, shape, tensor.dtype, place)
        blocks = build.cast(blocks, tensor.dtype, travels, place)
        start, _ = build.sizes.bounds(sharded, 0)
        last_start, last_count = build.sizes.bounds(sharded, self.num - 1)
        end = build.sizes.plus(last_start, last_count)
        after = build.sizes.minus(build.sizes.scalar(rows), end)
        zero = build.sizes.scalar(0)
        paddings = [zero, zero, start, after, zero, zero]
        padded = _padded(build, blocks, paddings, travels, place)
        elements = _num_elements([tensor])
        whole = self._between_hosts(build, padded, travels, elements)
        whole = build.cast(whole, travels, tensor.dtype, place)
        own_axis = build.sizes.packed([build.sizes.scalar(sharded.size)])
        shape = build.concat([front, own_axis, behind], 0, tf.int32, HOST)
        return build.reshape(whole, shape, tensor.dtype, place)

    def _around(self, build, tensor, sharded, own):
        """Sizes of the axes in front of the sharded one, and behind it."""
        axis = sharded.axis
        if tensor.shape is not None:
            vectors = [tensor.shape[:axis], tensor.shape[axis + 1 :]]
            return [build.sizes.vector(tuple(vector)) for vector in vectors]
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

    def reduce(self, build, tensors, by):
        if self.total == 1:
            return [build.parts(tensor) for tensor in tensors]
        if self._meet_on_host:
            parts = [refs[:1] for refs in super().reduce(build, tensors, by)]
        else:
            parts = [build.parts(tensor) for tensor in tensors]
        totals = {}
        for numbers in _packs(tensors):
            group = [tensors[number] for number in numbers]
            own = [parts[number] for number in numbers]
            totals.update(zip(numbers, self._reduce(build, group, own, by)))
        return [totals[number] for number in range(len(tensors))]

    @property
    def _meet_on_host(self):
        """Whether a worker's replicas meet in its memory, then the workers."""
        return self.shares_memory and self.num_workers > 1

    def _reduce(self, build, tensors, parts, by):
        """Sums tensors of one type as one vector.

        Args:
            build: The `Build`.
            tensors: The tensors.
            parts: For each, references to its parts, one per place.
            by: See `reduce`.
        """
        dtype = tensors[0].dtype
        travels = _transport(tensors[0])
        packs, shapes = [], []
        for place in range(len(parts[0])):
            flat = [
                build.cast(references[place], dtype, travels, place)
                for references in parts
            ]
            if len(flat) > 1:
                shapes.append([build.sizes.shape(r, travels) for r in flat])
                flat = [build.flat(ref, travels, place) for ref in flat]
            packs.append(build.concat(flat, 0, travels, place))
        totals = self.collective(
            build, packs, travels, _MERGE[by], _num_elements(tensors)
        )
        results = [[] for _ in tensors]
        for place, total in enumerate(totals):
            own = [total]
            if len(tensors) > 1:
                own = self._unpacked(
                    build, total, shapes[place], travels, place
                )
            for result, part in zip(results, own):
                result.append(build.cast(part, travels, dtype, place))
        if self._meet_on_host:
            return [build.same(result[0]) for result in results]
        return results

    def _unpacked(self, build, total, shapes, dtype, place):
        lengths = [_product(build, shape) for shape in shapes]
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

    def may_differ(self, tensor):
        return self.num_workers > 1 and (
            tensor.dtype in _TRAVELS or tensor.dtype in _TRAVELS_AS
        )

    def agreed(self, build, references, tensor):
        """A whole value, as the first worker has it.

        Kernels that add in an order of their own may give other bits to other
        workers; what variables are changed by must be the same everywhere.
        """
        dtype = tensor.dtype
        travels = _TRAVELS_AS.get(dtype, dtype)
        place = build.place_of(references[0])
        value = build.cast(references[0], dtype, travels, place)
        if self.first:
            value = build.op("ZerosLike", [value], {"T": travels}, place)[0]
        elements = _num_elements([tensor])
        value = self._between_hosts(build, value, travels, elements)
        return build.same(build.cast(value, travels, dtype, place))

    def collective(self, build, references, dtype, merge, elements):
        """One value per replica, merged over all replicas of the job.

        Args:
            build: The `Build`.
            references: The values; one per worker where its replicas' are
                merged already.
            dtype: Their type.
            merge: `"Add"`, `"Max"` or `"Min"`.
            elements: How many each has; `None` if that changes.
        """
        if self._meet_on_host:
            (own,) = references
            return [self._between_hosts(build, own, dtype, elements, merge)]
        if build.clock is not None:
            build.clock.ready(references[0], dtype)
        what = (merge, elements, dtype.name)
        meeting = self._meeting(build, "replicas", self.total, what)
        write = self._filled_up if elements is None else self._write
        totals = [
            write(build, reference, dtype, merge, place, meeting, self.hint)
            for place, reference in enumerate(references)
        ]
        build.writer.together(list(map(node_name, totals)))
        if build.clock is not None:
            build.clock.done(totals[0], dtype)
        return totals

    def _between_hosts(self, build, reference, dtype, elements, merge="Add"):
        """One value per worker, merged over the workers."""
        what = (merge, elements, dtype.name)
        meeting = self._meeting(build, "hosts", self.num_workers, what)
        if build.clock is not None:
            build.clock.ready(reference, dtype)
        if elements is not None and elements * dtype.size <= AT_ONCE:
            total = self._at_once(build, reference, dtype, merge, meeting)
        else:
            write = self._filled_up if elements is None else self._write
            total = write(build, reference, dtype, merge, HOST, meeting, "ring")
        if build.clock is not None:
            build.clock.done(total, dtype)
        return total

    def _at_once(self, build, value, dtype, merge, meeting):
        """Sends every worker the whole value; each merges all in one order."""
        many = {"N": self.num_workers, "T": dtype}
        copies = [value] * self.num_workers
        sent = build.op("Pack", copies, {**many, "axis": 0}, HOST)[0]
        given = self._meet(
            build, "CollectiveAllToAllV2", sent, {"T": dtype}, HOST, meeting
        )
        attributes = {"num": self.num_workers, "T": dtype, "axis": 0}
        values = build.op("Unpack", [given], attributes, HOST)
        if merge == "Add":
            return build.op("AddN", values, many, HOST)[0]
        type = "Maximum" if merge == "Max" else "Minimum"
        return functools.reduce(
            lambda one, other: build.op(type, [one, other], {"T": dtype}, HOST)[
                0
            ],
            values,
        )

    def _meeting(self, build, who, size, what):
        """Numbers of a new collective: of the members, the group, and its own.

        Each function has groups of its own.
        """
        while build.parent is not None:
            build = build.parent
        build.keep("collectives", list).append((who, *what))
        group, instances = build.keep(
            ("meetings", who), lambda: (next(_groups), itertools.count(1))
        )
        return size, group, next(instances)

    def compare(self, build, name):
        collectives = build.keep("collectives", list)
        if self._tell is None or self.num_workers == 1 or not collectives:
            return  # Who meets nobody may run by itself.
        numbers = [_hash(collective) for collective in collectives]
        with tf.init_scope():
            all_of_it = self._tell([len(numbers), _hash(numbers)])
            if np.all(all_of_it == all_of_it[0]):
                return
            longest = int(all_of_it[:, 0].max())
            table = self._tell(numbers + [-1] * (longest - len(numbers)))
        number = int(np.argmax(np.any(table != table[0], 0)))
        own = "none"
        if number < len(collectives):
            who, merge, elements, dtype = collectives[number]
            own = f"{merge} of {elements or 'some'} {dtype} between {who}"
        raise InputError(
            f"Workers of a job run the same steps. Received: {name!r}, whose "
            f"collective number {number + 1} is not the same on all; on worker "
            f"{self.first // self.num} of {self.num_workers} it is: {own}. "
            "Look for what depends on the worker's number, or on the order of "
            "a set."
        )

    def _filled_up(self, build, value, dtype, merge, place, meeting, hint):
        """A collective of values whose shape may change from step to step.

        TensorFlow remembers the shape of a collective by its number. So vectors
        are filled up to one of some lengths, each of which has its own numbers.
        """
        number = build.sizes
        shape = number.shape(value, dtype)
        length = _product(build, shape)
        lengths = build.constant(_LENGTHS, tf.int32, HOST)
        is_less = number.op("Less", lengths, length)
        is_less = build.cast(is_less, tf.bool, tf.int32, HOST)
        which = _reduced(build, "Sum", is_less)
        filled = number.entry_at(lengths, which)
        rest = number.minus(filled, length)
        zero, one = number.scalar(0), number.scalar(1)
        flat = build.flat(value, dtype, place)
        flat = _padded(build, flat, [zero, rest], dtype, place)
        size, group, instance = meeting
        instance = number.plus(
            number.scalar(instance),
            number.times(which, number.scalar(_MOST_COLLECTIVES)),
        )
        meeting = size, group, instance
        total = self._write(build, flat, dtype, merge, place, meeting, hint)
        bounds = [number.packed([bound]) for bound in (zero, length, one)]
        total = build.strided_slice(total, *bounds, dtype, place)
        return build.reshape(total, shape, dtype, place)

    def _write(self, build, value, dtype, merge, place, meeting, hint):
        attributes = {
            "T": dtype,
            "merge_op": merge,
            "final_op": "Id",
            "communication_hint": hint,
            "max_subdivs_per_device": -1,
        }
        return self._meet(
            build, "CollectiveReduceV2", value, attributes, place, meeting
        )

    def _meet(self, build, type, value, attributes, place, meeting):
        """Writes a collective operation; returns what it gives.

        Args:
            build: The `Build`.
            type: Type of the operation.
            value: What it is given.
            attributes: Its own attributes.
            place: Where it runs.
            meeting: See `_meeting`.
        """
        numbers = [
            build.constant(n, tf.int32, HOST) if isinstance(n, int) else n
            for n in meeting
        ]
        attributes = {
            "timeout_seconds": float(self._timeout_seconds or 0),
            "is_stateless": False,
            "Nordering_token": 0,
            "communication_hint": "ring",
            **attributes,
        }
        # Collectives of the hosts come one after the other with those of the
        # replicas: begun in other orders, each could wait for the other.
        before = build.last_collective
        wait_for = list(before) if place == HOST else [place, HOST]
        controls = [before[where] for where in wait_for if before.get(where)]
        controls.append(build.keep("concurrent", lambda: _concurrent(build)))
        made = build.op(
            type,
            [value, *numbers],
            attributes,
            place,
            f"replica_{place}/all_reduce"
            if place != HOST
            else "host/all_reduce",
            controls,
        )
        build.last_collective[place] = build.writer.last
        return made[0]


def _concurrent(build):
    """The name of a node with which a function runs on several threads.

    TensorFlow (2.18 to 2.21) runs a function without control flow, whose
    devices send each other nothing, on one thread: it would wait in the first
    device's collective, and never begin that of the second.
    """
    true = build.constant(True, tf.bool, HOST)
    build.op("Switch", [true, true], {"T": tf.bool}, HOST)
    return build.writer.last


def _product(build, vector):
    """The product of a vector of sizes."""
    return _reduced(build, "Prod", vector)


def _reduced(build, type, vector):
    attributes = {"T": tf.int32, "Tidx": tf.int32, "keep_dims": False}
    axis = build.sizes.scalar(0)
    return build.op(type, [vector, axis], attributes, HOST)[0]


def _num_elements(tensors):
    """Elements of tensors in all; `None` if one has none, or not always."""
    if not all(0 < tensor.num_bytes < float("inf") for tensor in tensors):
        return None
    return sum(tensor.num_elements for tensor in tensors)


def _hash(value):
    """A number that is the same in all processes, and exact as a float."""
    digest = hashlib.sha256(repr(value).encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _padded(build, reference, paddings, dtype, place):
    """A value between zeros; `paddings`: two scalars for each axis."""
    rank = len(paddings) // 2
    paddings = build.reshape(
        build.sizes.packed(paddings),
        build.constant([rank, 2], tf.int32, HOST),
        tf.int32,
        HOST,
    )
    attributes = {"T": dtype, "Tpaddings": tf.int32}
    return build.op("Pad", [reference, paddings], attributes, place)[0]


def _packs(tensors):
    """Numbers of tensors by what is summed as one vector."""
    packs, last = [], {}
    for number, tensor in enumerate(tensors):
        size = tensor.num_bytes
        if LARGE <= size < float("inf"):
            packs.append([[number], size])
            continue
        pack = last.get(tensor.dtype)
        if pack is None or pack[1] + size > BYTES_PER_PACK:
            pack = last[tensor.dtype] = [[], 0]
            packs.append(pack)
        pack[0].append(number)
        pack[1] += size
    return [numbers for numbers, _ in packs]


def _transport(tensor):
    """A type in which collectives can send a tensor's values."""
    travels = _TRAVELS_AS.get(tensor.dtype, tensor.dtype)
    if travels not in _TRAVELS:
        raise InputError(
            "Rows that are needed whole travel between replicas as numbers. "
            f"Received: {tensor.node.type} {tensor.node.name!r} of type "
            f"{tensor.dtype.name}; convert it to numbers in the data set or in "
            "a layer such as keras.layers.StringLookup, or run on one worker."
        )
    return travels
