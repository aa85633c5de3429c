"""The replicas of one process, and what passes between them."""

import tensorflow as tf

from kerasmgpu.partitioner import entries
from kerasmgpu.partitioner.kinds import Sharded
from kerasmgpu.partitioner.places import HOST

SMALL = 1 << 14
"""Partial values with no more bytes than this are summed as one."""

_COMBINE = {
    "all": "LogicalAnd",
    "any": "LogicalOr",
    "max": "Maximum",
    "min": "Minimum",
}


class Replicas:
    """The replicas of a process that is a job by itself.

    Args:
        devices: Full names of their devices.
        host: Full name of the CPU.

    Attributes:
        num: Number of replicas in this process.
        total: Number of all replicas.
        first: Number of the first one of this process among all.
        shares_memory: Whether a tensor that is sent from one device to another
            is not copied, as between logical CPU devices.
        has_cpus: Whether some of the devices are CPUs.
        is_anywhere: Whether it is one replica without a device of its own.
        sums_are_copies: Whether each device gets an all-reduced value of its
            own, rather than all the same.
        gathers_are_copies: Whether each device gets an all-gathered value of
            its own.
    """

    def __init__(self, devices, host):
        self.devices = list(devices)
        self.host = host
        self.num = len(self.devices)
        self.total = self.num
        self.first = 0
        self.has_cpus = any("CPU" in device for device in devices)
        self.shares_memory = not any("GPU" in device for device in devices)
        self.is_anywhere = self.devices == [""]
        self.sums_are_copies = False
        self.gathers_are_copies = False

    def alone(self):
        """One replica without a device of its own: that of who calls it."""
        replicas = Replicas([""], "")
        replicas.total = self.total
        replicas.has_cpus = self.has_cpus
        return replicas

    # Rows --------------------------------------------------------------------

    def always_has_rows(self, rows):
        """Whether no share of these rows can be empty."""
        return (
            isinstance(rows.size, int)
            and rows.size >= self.total
            and rows.of is None
        )

    def shares(self, build, rows):
        """Starts and numbers of each local replica's rows, on the host.

        Returns:
            List of pairs of references, one per local replica.
        """
        if rows.of is not None:
            return entries.shares(build, rows)
        counts = self._given_counts(build, rows)
        if counts is not None:
            return self.shares_of_counts(build, counts)
        if isinstance(rows.size, int):
            bounds = bounds_of(rows.size, self.total)
            pairs = list(zip(bounds, bounds[1:]))
            return [
                (build.sizes.scalar(start), build.sizes.scalar(end - start))
                for start, end in pairs[self.first : self.first + self.num]
            ]
        return self._computed_shares(build, build.sizes.scalar(rows.size))

    def shares_of_counts(self, build, counts):
        """Starts and counts, from the counts of this process's replicas."""
        starts = [build.sizes.scalar(0)]
        for count in counts[:-1]:
            starts.append(build.sizes.plus(starts[-1], count))
        return list(zip(starts, counts))

    def total_rows(self, build, rows):
        """Number of all rows of an input that is given in shares."""
        counts = self._given_counts(build, rows)
        attributes = {"N": len(counts), "T": tf.int32}
        return build.op("AddN", counts, attributes, HOST)[0]

    def _given_counts(self, build, rows):
        """Rows of each local share of an input; `None` if it is given whole."""
        for tensor in build.graph.inputs:
            if not build.is_written(tensor):
                continue
            kind = build.natural(tensor)
            if isinstance(kind, Sharded) and kind.rows == rows:
                return [
                    build.sizes.size(reference, tensor.dtype)
                    for reference in build.given(tensor)
                ]
        return None

    def _computed_shares(self, build, size):
        """Shares of a batch that is given whole: the first get one row more."""
        sizes, total = build.sizes, build.sizes.scalar(self.total)
        each = sizes.op("FloorDiv", size, total)
        rest = sizes.op("FloorMod", size, total)
        numbers = build.constant(list(range(self.total + 1)), tf.int32, HOST)
        starts = sizes.plus(
            sizes.times(numbers, each), sizes.op("Minimum", numbers, rest)
        )
        attributes = {"num": self.total + 1, "T": tf.int32, "axis": 0}
        starts = build.op("Unpack", [starts], attributes, HOST)
        return [
            (starts[number], sizes.minus(starts[number + 1], starts[number]))
            for number in range(self.first, self.first + self.num)
        ]

    # Communication -----------------------------------------------------------

    def gather(self, build, tensor, sharded):
        """All rows of a sharded tensor, in order.

        Returns:
            References by replica.
        """
        parts = build.given(tensor)
        if self.num == 1:
            return parts
        place = 0 if tensor.dtype.is_floating else HOST
        return build.same(self.joined(build, tensor, sharded, parts, place))

    def joined(self, build, tensor, sharded, parts, place):
        """The local replicas' rows of a tensor, one after the other."""
        axis, dtype, shape = sharded.axis, tensor.dtype, tensor.shape
        if sharded.outer == 1:
            return build.concat(parts, axis, dtype, place)
        # Several blocks of all rows: joined block by block.
        split = []
        for number, part in enumerate(parts):
            outer = build.sizes.scalar(sharded.outer)
            _, count = build.sizes.bounds(sharded, number)
            blocks = build.sizes.with_axis(shape, axis, outer, count)
            split.append(build.reshape(part, blocks, dtype, number))
        together = build.concat(split, axis + 1, dtype, place)
        size = self.own_size(build, sharded)
        own = build.sizes.with_axis(shape, axis, size)
        return build.reshape(together, own, dtype, place)

    def own_size(self, build, sharded):
        """Elements that the local replicas have together on a sharded axis."""
        return build.sizes.scalar(sharded.size)

    def reduce(self, build, tensors, by):
        """Whole values of partial ones.

        Args:
            build: The `Build`.
            tensors: The tensors, all partial in the same way.
            by: `"sum"`, `"max"`, `"min"`, `"all"` or `"any"`.

        Returns:
            For each tensor, references by replica.
        """
        parts = [build.parts(tensor) for tensor in tensors]
        if self.num == 1:
            return parts
        if by != "sum":
            return [
                build.same(combined(build, references, tensor.dtype, by))
                for tensor, references in zip(tensors, parts)
            ]
        return self._sums(build, tensors, parts)

    def _sums(self, build, tensors, parts):
        """References by replica to the sum of each tensor's parts."""
        totals = {}
        for numbers in packs(tensors, SMALL):
            dtype = tensors[numbers[0]].dtype
            sums = self._sum(build, dtype, [parts[n] for n in numbers])
            totals.update(zip(numbers, map(build.same, sums)))
        return [totals[number] for number in range(len(tensors))]

    def may_differ(self, tensor):
        """Whether workers may have computed other bits of a whole value."""
        return False

    def agreed(self, build, references, tensor):
        """A whole value as the first worker has it; see `may_differ`."""
        return references

    def compare(self, build, name):
        """Raises an error where workers don't write the same collectives.

        They would wait for each other for ever, or add what is not alike.

        Args:
            build: The `Build` that has written a function.
            name: That of the traced one.
        """

    def _sum(self, build, dtype, parts):
        """Sums of tensors of one shape, as one if there are several."""
        attributes = {"N": self.num, "T": dtype}
        if len(parts) == 1:
            return build.op("AddN", list(parts[0]), attributes, 0)
        stack = {"N": len(parts), "T": dtype, "axis": 0}
        stacks = [
            build.op("Pack", [refs[place] for refs in parts], stack, place)[0]
            for place in range(self.num)
        ]
        total = build.op("AddN", stacks, attributes, 0)[0]
        return build.op(
            "Unpack", [total], {"num": len(parts), "T": dtype, "axis": 0}, 0
        )


def packs(tensors, largest):
    """Numbers of tensors by what is summed as one: small ones of one shape."""
    groups = {}
    for number, tensor in enumerate(tensors):
        is_small = tensor.num_bytes <= largest
        key = (tensor.dtype, tensor.shape) if is_small else number
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def combined(build, references, dtype, by):
    """The extreme of several values, or whether all or any are true."""
    attributes = {} if by in ("all", "any") else {"T": dtype}
    total = references[0]
    for reference in references[1:]:
        total = build.op(_COMBINE[by], [total, reference], attributes, 0)[0]
    return total


def bounds_of(size, num_replicas):
    """First rows of the shares of `size` rows, and the end of the last one."""
    each, rest = divmod(size, num_replicas)
    return [n * each + min(n, rest) for n in range(num_replicas + 1)]
