"""Sizes as they are when the graph runs: integers on the host.

Each is written once, when it is first needed. A function that is the body of a
loop or a branch gets those that it doesn't know from the function around it.
"""

import tensorflow as tf

from kerasmgpu.partitioner.kinds import Sharded
from kerasmgpu.partitioner.places import HOST


class HostSizes:
    """The sizes of one function.

    Args:
        build: The `building.Build` of the function.

    Attributes:
        imports: `{request: reference}` of what the function around this one
            has to pass.
    """

    def __init__(self, build):
        self._build = build
        self.imports = {}

    def vector(self, value, dtype=tf.int32):
        """A size, or a tuple of sizes, as a scalar or vector.

        Args:
            value: Integer, `sizes.Size` or tuple of these.
            dtype: Type of the result.
        """
        entries = value if isinstance(value, tuple) else (value,)
        if all(isinstance(entry, int) for entry in entries):
            return self._build.constant(value, dtype, HOST)
        if not isinstance(value, tuple):
            return self.scalar(value, dtype)
        return self.packed(
            [self.scalar(entry, dtype) for entry in entries], dtype
        )

    def with_axis(self, shape, axis, *sizes):
        """A shape as a vector, with other sizes in the place of one axis.

        Args:
            shape: Tuple of sizes.
            axis: Number of the axis.
            *sizes: References to scalars.
        """
        return self.packed(
            [
                *map(self.scalar, shape[:axis]),
                *sizes,
                *map(self.scalar, shape[axis + 1 :]),
            ]
        )

    def packed(self, entries, dtype=tf.int32):
        """References to scalars as a vector."""
        attributes = {"N": len(entries), "T": dtype, "axis": 0}
        return self._build.op("Pack", entries, attributes, HOST)[0]

    def scalar(self, size, dtype=tf.int32):
        """A size as a scalar."""
        if isinstance(size, int):
            return self._build.constant(size, dtype, HOST)
        if dtype != tf.int32:
            return self._build.cast(self.scalar(size), tf.int32, dtype, HOST)
        total = None
        for symbols, coefficient in size.terms.items():
            term = None
            if coefficient != 1 or not symbols:
                term = self.scalar(coefficient)
            for symbol in symbols:
                term = self.times(term, self.symbol(symbol))
            total = term if total is None else self.plus(total, term)
        return total

    def symbol(self, symbol):
        """The number that a symbol stands for."""
        symbol = symbol.joined
        key = ("symbol", symbol)
        return self._build.keep(key, lambda: self._symbol(symbol))

    def _symbol(self, symbol):
        build, (tensor, axis) = self._build, symbol.source
        if not build.is_written(tensor):
            return self.imported(("symbol", symbol))
        if symbol.is_entry:
            return self.entry_of_value(symbol)
        kind = build.natural(tensor)
        if isinstance(kind, Sharded) and kind.axis == axis:
            if symbol.is_rows:
                return build.replicas.total_rows(build, kind.rows)
            return self.scalar(kind.size)
        reference = build.given(tensor)[0]
        return self.size(reference, tensor.dtype, axis)

    def entry_of_value(self, symbol):
        """The number that a symbol stands for which is one of a vector."""
        tensor, index = symbol.source
        reference = self._build.given(tensor)[0]
        entry = self.entry(reference, index, tensor.dtype)
        return self._build.cast(entry, tensor.dtype, tf.int32, HOST)

    def shape(self, reference, dtype):
        """The shape of what a reference is to, as a vector."""
        attributes = {"T": dtype, "out_type": tf.int32}
        place = self._build.place_of(reference)
        return self._build.op("Shape", [reference], attributes, place)[0]

    def size(self, reference, dtype, axis=0):
        """The size of an axis of what a reference is to."""
        return self.entry(self.shape(reference, dtype), axis)

    def entry(self, vector, index, dtype=tf.int32):
        """An entry of a vector."""
        bounds = [
            self._build.constant([bound], tf.int32, HOST)
            for bound in (index, index + 1, 1)
        ]
        return self._build.strided_slice(
            vector, *bounds, dtype, HOST, shrink_axis_mask=1
        )

    def entry_at(self, vector, index):
        """An entry of a vector, at an index that is a reference."""
        attributes = {"Tparams": tf.int32, "Tindices": tf.int32}
        attributes |= {"Taxis": tf.int32, "batch_dims": 0}
        inputs = [vector, index, self.scalar(0)]
        return self._build.op("GatherV2", inputs, attributes, HOST)[0]

    def start(self, rows, place):
        """The number of a replica's first row."""
        return self._of_rows("start", rows, place)

    def count(self, rows, place):
        """The number of a replica's rows."""
        return self._of_rows("count", rows, place)

    def _of_rows(self, what, rows, place):
        build = self._build
        if build.parent is not None:
            return self.imported((what, rows, place))
        start, count = build.keep(
            ("shares", rows), lambda: build.replicas.shares(build, rows)
        )[place]
        return start if what == "start" else count

    def local(self, sharded, place):
        """Elements of a sharded axis on one replica."""
        size = self.count(sharded.rows, place)
        for factor in (sharded.outer, sharded.inner):
            if factor != 1:
                size = self.times(size, self.scalar(factor))
        return size

    def bounds(self, sharded, place):
        """First element and number of elements of a replica in each block."""
        start = self.start(sharded.rows, place)
        count = self.count(sharded.rows, place)
        if sharded.inner == 1:
            return start, count
        inner = self.scalar(sharded.inner)
        return self.times(start, inner), self.times(count, inner)

    def share(self, rows, dtype, place):
        """A replica's rows over all rows, divided in float64."""
        numbers = [
            self._build.cast(number, tf.int32, tf.float64, HOST)
            for number in (self.count(rows, place), self.scalar(rows.size))
        ]
        ratio = self.op("RealDiv", *numbers, dtype=tf.float64)
        return self._build.cast(ratio, tf.float64, dtype, HOST)

    def times(self, one, two):
        """A product of scalars; `None` is 1."""
        return two if one is None else self.op("Mul", one, two)

    def plus(self, one, two):
        """A sum of scalars."""
        return self.op("AddV2", one, two)

    def minus(self, one, two):
        """A difference of scalars."""
        return self.op("Sub", one, two)

    def op(self, type, *operands, dtype=tf.int32):
        """An operation on numbers of one type; references to them."""
        return self._build.op(type, list(operands), {"T": dtype}, HOST)[0]

    def imported(self, request):
        """A number that the function around this one passes.

        Args:
            request: `("symbol", symbol)`, `("start", rows, place)` or
                `("count", rows, place)`.
        """
        if self._build.parent is None:
            raise RuntimeError(f"Nothing of the graph tells {request}.")
        if request not in self.imports:
            self.imports[request] = self._build.writer.add_input(
                "size", tf.int32
            )
        return self.imports[request]

    def exported(self, request):
        """What a body asked for with `imported`."""
        what, *about = request
        return getattr(self, what)(*about)
