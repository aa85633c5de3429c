"""The replicas of one process: where they are, and what passes between them."""

import tensorflow as tf

from kerasmgpu.partitioner import sizes

_SMALL = 1 << 14
"""Partial sums with no more bytes than this are summed as one."""

_COMBINE = {"max": "Maximum", "min": "Minimum", "all": "LogicalAnd", "any": "LogicalOr"}


class Replicas:
    """The replicas that one process runs.

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
    """

    def __init__(self, devices, host):
        self.devices = list(devices)
        self.host = host
        self.num = len(self.devices)
        self.total = self.num
        self.first = 0
        self.has_cpus = any("CPU" in device for device in devices)
        self.shares_memory = not any("GPU" in device for device in devices)

    def alone(self):
        """One replica without a device of its own: that of who calls it."""
        replicas = Replicas([""], "")
        replicas.total = self.total
        replicas.has_cpus = self.has_cpus
        return replicas

    def always_has_rows(self, rows):
        """Whether no share of these rows can be empty."""
        return isinstance(rows.size, int) and rows.size >= self.total

    def shares(self, build, rows):
        """Starts and numbers of each local replica's rows, on the host.

        Returns:
            List of pairs of references, one per local replica.
        """
        from kerasmgpu.partitioner.building import HOST

        counts = self._counts(build, rows)
        if counts is not None:
            starts = [build.constant(0, tf.int32, HOST)]
            for count in counts[:-1]:
                starts.append(
                    build.op("AddV2", [starts[-1], count], {"T": tf.int32}, HOST)[0]
                )
            return list(zip(starts, counts))
        if isinstance(rows.size, int):
            bounds = bounds_of(rows.size, self.total)
            return [
                (
                    build.constant(start, tf.int32, HOST),
                    build.constant(end - start, tf.int32, HOST),
                )
                for start, end in zip(bounds, bounds[1:])
            ]
        size = build.size(rows.size)
        total = build.constant(self.total, tf.int32, HOST)
        numbers = build.constant(list(range(self.total + 1)), tf.int32, HOST)
        integer = {"T": tf.int32}

        def op(type, *inputs):
            return build.op(type, list(inputs), integer, HOST)[0]

        each, rest = op("FloorDiv", size, total), op("FloorMod", size, total)
        starts = op("AddV2", op("Mul", numbers, each), op("Minimum", numbers, rest))
        entries = build.op(
            "Unpack", [starts], {"num": self.total + 1, "T": tf.int32, "axis": 0}, HOST
        )
        return [
            (entries[n], op("Sub", entries[n + 1], entries[n]))
            for n in range(self.first, self.first + self.num)
        ]

    def all_rows(self, build, rows):
        """The number of rows of an input that is given in shares."""
        from kerasmgpu.partitioner.building import HOST

        counts = self._counts(build, rows)
        return build.op("AddN", counts, {"N": len(counts), "T": tf.int32}, HOST)[0]

    def _counts(self, build, rows):
        """Rows of each share of an input, where it is given in shares."""
        from kerasmgpu.partitioner.building import HOST

        given = build.shares_of(rows)
        if given is None:
            return None
        tensor, shares = given
        attributes = {"T": tensor.dtype, "out_type": tf.int32}
        return [
            build.entry(build.op("Shape", [share], attributes, place)[0], 0)
            for place, share in enumerate(shares)
        ]

    def gather(self, build, tensor, sharded, parts):
        """All rows of a sharded tensor."""
        from kerasmgpu.partitioner.building import HOST

        if self.num == 1:
            return parts
        dtype = tensor.dtype
        place = 0 if dtype.is_floating else HOST
        axis = sharded.axis
        if sharded.outer != 1:
            # Blocks of all rows: put together block by block.
            split = []
            for number, part in enumerate(parts):
                own = build.rows(sharded.rows, "count", number)
                if sharded.inner != 1:
                    own = build._times(own, build.size(sharded.inner))
                shape = [
                    *map(build.size, tensor.shape[:axis]),
                    build.size(sharded.outer),
                    own,
                    *map(build.size, tensor.shape[axis + 1 :]),
                ]
                split.append(
                    build.reshaped(part, build._packed(shape, tf.int32), dtype, number)
                )
            joined = build.concatenated(split, axis + 1, dtype, place)
            whole = build.reshaped(joined, build.vector(tensor.shape), dtype, place)
        else:
            whole = build.concatenated(parts, axis, dtype, place)
        return build.same(whole)

    def reduce(self, build, tensors, parts, by):
        """The sums (or extremes) of partial values.

        Args:
            build: The `Build`.
            tensors: The tensors.
            parts: For each, the references to the replicas' parts.
            by: `"sum"`, `"max"`, `"min"`, `"all"` or `"any"`.

        Returns:
            For each tensor, a list with a reference per replica.
        """
        if self.num == 1:
            return parts
        if by != "sum":
            return [
                build.same(self._combined(build, tensor, references, by))
                for tensor, references in zip(tensors, parts)
            ]
        results = [None] * len(tensors)
        small = {}
        for number, tensor in enumerate(tensors):
            if _bytes(tensor) <= _SMALL:
                small.setdefault((tensor.dtype, tensor.shape), []).append(number)
            else:
                results[number] = self._sum(build, tensor.dtype, parts[number])
        for (dtype, _), numbers in small.items():
            if len(numbers) == 1:
                (number,) = numbers
                results[number] = self._sum(build, dtype, parts[number])
                continue
            attributes = {"N": len(numbers), "T": dtype, "axis": 0}
            packs = [
                build.op(
                    "Pack", [parts[n][place] for n in numbers], attributes, place
                )[0]
                for place in range(self.num)
            ]
            total = self._sum(build, dtype, packs)
            entries = build.op(
                "Unpack", [total], {"num": len(numbers), "T": dtype, "axis": 0}, 0
            )
            for number, entry in zip(numbers, entries):
                results[number] = entry
        return [build.same(reference) for reference in results]

    def _sum(self, build, dtype, references):
        return build.op(
            "AddN", references, {"N": len(references), "T": dtype}, 0
        )[0]

    def _combined(self, build, tensor, references, by):
        attributes = {} if by in ("all", "any") else {"T": tensor.dtype}
        total = references[0]
        for reference in references[1:]:
            total = build.op(_COMBINE[by], [total, reference], attributes, 0)[0]
        return total


def bounds_of(size, num_replicas):
    """First rows of the shares of `size` rows, and the end of the last one."""
    each, rest = divmod(size, num_replicas)
    return [n * each + min(n, rest) for n in range(num_replicas + 1)]


def _bytes(tensor):
    """Bytes of a tensor; a lot where that isn't known."""
    if tensor.shape is None:
        return float("inf")
    elements = sizes.product(tensor.shape)
    return elements * tensor.dtype.size if isinstance(elements, int) else float("inf")
