"""Writes symbolic sizes, which the host computes when the function runs.

Each is written once, on its first use. The body of a loop or branch takes sizes
of the enclosing function as arguments. Nothing here communicates: where a size
depends on other workers' shares, `passes/localise_sizes.py` has inserted
instructions that gather their numbers of rows.
"""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import tensorflow as tf

from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.lowering.operation_writer import OperationWriter
from kerasmgpu.partitioner.rules.compatible import undivided
from kerasmgpu.partitioner.rules.kinds import Rows, Shape, Sharded
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.places import HOST, OnEachPlace
from kerasmgpu.partitioner.step.references import Reference
from kerasmgpu.partitioner.step.sizes import SizeLike, Symbol

Request = tuple[str, Symbol] | tuple[str, Rows, int]
"""A size that a body takes from the enclosing function: `("symbol", symbol)`,
`("start", rows, place)` or `("count", rows, place)`."""


class Values(Protocol):
    """Interface to values and rows; see `function_writer.Function`."""

    parent: Any

    def is_written(self, tensor: Tensor) -> bool: ...

    def natural(self, tensor: Tensor) -> Value: ...

    def given(self, tensor: Tensor) -> Sequence[Reference] | OnEachPlace: ...

    def total_rows(self, rows: Rows) -> Reference: ...

    def passed_counts(self, rows: Rows) -> list[Reference] | None: ...

    def equal_count(self, rows: Rows) -> int | None: ...

    def shares(self, rows: Rows) -> list[tuple[Reference, Reference]]: ...


class HostSizes:
    """Writes the sizes of one function.

    Args:
        build: `OperationWriter` of the function.

    Attributes:
        places: The places of a view of the function; see `Function.places`.
        imports: `{request: reference}` of sizes that the enclosing function
            passes.
    """

    def __init__(self, build: OperationWriter, values: Values) -> None:
        self._build = build
        self._values = values
        self.places: Sequence[int] | None = None
        self.imports: dict[Request, Reference] = {}

    def at(self, places: Sequence[int]) -> "HostSizes":
        """Returns a view in which places count those of a view of the function."""
        view = copy.copy(self)
        view.places = places
        return view

    def vector(
        self, value: SizeLike | tuple[SizeLike, ...], dtype: tf.DType = tf.int32
    ) -> Reference:
        """Returns a size as a scalar, or a tuple of sizes as a vector.

        Args:
            value: Integer, `sizes.Size` or tuple of these.
        """
        entries = value if isinstance(value, tuple) else (value,)
        if all(isinstance(entry, int) for entry in entries):
            known = cast(int | tuple[int, ...], value)
            return self._build.constant(known, dtype)
        if not isinstance(value, tuple):
            return self.scalar(value, dtype)
        return self.packed([self.scalar(entry, dtype) for entry in entries])

    def with_axis(
        self, shape: Shape, axis: int, *sizes: Reference
    ) -> Reference:
        """Returns a shape as a vector, with one axis replaced.

        Args:
            *sizes: References to scalars that replace its size.
        """
        return self.packed(
            [
                *map(self.scalar, shape[:axis]),
                *sizes,
                *map(self.scalar, shape[axis + 1 :]),
            ]
        )

    def packed(self, entries: Sequence[Reference]) -> Reference:
        """Packs scalars into a vector."""
        return self.op("Pack", *entries)

    def scalar(self, size: SizeLike, dtype: tf.DType = tf.int32) -> Reference:
        """Returns a size as a scalar."""
        if isinstance(size, int):
            return self._build.constant(size, dtype)
        if dtype != tf.int32:
            return self._build.cast(self.scalar(size), dtype)
        total: Reference | None = None
        for symbols, coefficient in size.terms.items():
            term: Reference | None = None
            if coefficient != 1 or not symbols:
                term = self.scalar(coefficient)
            for symbol in symbols:
                term = self.times(term, self.symbol(symbol))
            product = cast(Reference, term)
            total = product if total is None else self.plus(total, product)
        return cast(Reference, total)

    def symbol(self, symbol: Symbol) -> Reference:
        """Returns the value of a symbol as a scalar, which is cached."""
        symbol = symbol.joined
        key = ("symbol", symbol)
        return self._build.keep(key, lambda: self._symbol(symbol))

    def _symbol(self, symbol: Symbol) -> Reference:
        values, (tensor, axis) = self._values, symbol.source
        if not values.is_written(tensor) or (
            symbol.is_rows and values.parent is not None
        ):
            return self.imported(("symbol", symbol))
        if symbol.is_entry:
            return self.entry_of_value(symbol)
        for kind in values.natural(tensor).placement:
            if isinstance(kind, Sharded) and kind.axis == axis:
                if symbol.is_rows:
                    return values.total_rows(kind.rows)
                return self.scalar(kind.size)
        return self.size(values.given(tensor)[0], axis)

    def entry_of_value(self, symbol: Symbol) -> Reference:
        """Reads the value of a symbol with `is_entry` from its source."""
        tensor, index = symbol.source
        entry = self.entry(self._values.given(tensor)[0], index)
        return self._build.cast(entry, tf.int32)

    def shape(self, reference: Reference) -> Reference:
        """Returns the shape of a tensor as a vector, local if it is sharded."""
        place = self._build.place_of(reference)
        return self._build.op("Shape", [reference], place)[0]

    def size(self, reference: Reference, axis: int = 0) -> Reference:
        """Returns the size of an axis of a tensor, local if it is sharded."""
        return self.entry(self.shape(reference), axis)

    def entry(self, vector: Reference, *indices: int) -> Reference:
        """Returns an entry of a vector, or of a matrix, at fixed indices."""
        bounds = (indices, [n + 1 for n in indices], [1] * len(indices))
        every = (1 << len(indices)) - 1
        return self._build.strided_slice(
            vector,
            list(map(self._build.constant, bounds)),
            HOST,
            shrink_axis_mask=every,
        )

    def entry_at(self, vector: Reference, index: Reference) -> Reference:
        """Returns an entry of a vector, at a computed index."""
        return self.op("GatherV2", vector, index, self.scalar(0))

    def start(self, rows: Rows, place: int) -> Reference:
        """Returns the index, among all rows, of a replica's first row."""
        return self._bound("start", rows, self._place(place))

    def count(self, rows: Rows, place: int) -> Reference:
        """Returns the number of a replica's rows."""
        place = self._place(place)
        if self._values.parent is None:
            counts = self._values.passed_counts(rows)
            if counts is not None:
                return counts[self._build.mesh.position(place, rows.over)]
        elif (equal := self._values.equal_count(rows)) is not None:
            return self.scalar(equal)
        return self._bound("count", rows, place)

    def _place(self, place: int) -> int:
        return place if self.places is None else self.places[place]

    def _bound(self, bound: str, rows: Rows, place: int) -> Reference:
        if self._values.parent is not None:
            return self.imported((bound, rows, place))
        start, count = self._build.keep(
            ("shares", rows), lambda: self._values.shares(rows)
        )[self._build.mesh.position(place, rows.over)]
        return start if bound == "start" else count

    def local(self, sharded: Sharded, place: int) -> Reference:
        """Returns the local size of a sharded axis on one replica."""
        size = self.count(sharded.rows, place)
        for factor in (sharded.outer, sharded.inner):
            if factor != 1:
                size = self.times(size, self.scalar(factor))
        return size

    def of_axis(self, kinds: Sequence[Sharded], place: int) -> Reference:
        """Returns the local size of an axis, divided by each of some kinds."""
        if len(kinds) == 1:
            return self.local(kinds[0], place)
        counts = [self.count(kind.rows, place) for kind in kinds]
        return functools.reduce(
            self.times, counts, self.scalar(undivided(kinds))
        )

    def bounds(
        self, sharded: Sharded, place: int
    ) -> tuple[Reference, Reference]:
        """Returns a replica's first element and number of elements per block.

        These are of the sharded axis; `Sharded.outer` is the number of blocks.
        """
        start = self.start(sharded.rows, place)
        count = self.count(sharded.rows, place)
        if sharded.inner == 1:
            return start, count
        inner = self.scalar(sharded.inner)
        return self.times(start, inner), self.times(count, inner)

    def first_row(
        self, share: Reference, rows: Reference, num_shares: int
    ) -> Reference:
        """Returns the first row of a share; see `replica_arithmetic.first_row`."""
        number = self.scalar(num_shares)
        each = self.op("FloorDiv", rows, number)
        rest = self.op("FloorMod", rows, number)
        left_over = self.op("Minimum", share, rest)
        return self.plus(self.times(share, each), left_over)

    def share(self, rows: Rows, dtype: tf.DType, place: int) -> Reference:
        """Returns a replica's fraction of rows in `dtype`, divided in float64."""
        numbers = [
            self._build.cast(number, tf.float64)
            for number in (self.count(rows, place), self.scalar(rows.size))
        ]
        return self._build.cast(self.op("RealDiv", *numbers), dtype)

    def times(self, one: Reference | None, two: Reference) -> Reference:
        """Multiplies two scalars; `None` counts as 1."""
        return two if one is None else self.op("Mul", one, two)

    def plus(self, one: Reference, two: Reference) -> Reference:
        """Adds two scalars."""
        return self.op("AddV2", one, two)

    def minus(self, one: Reference, two: Reference) -> Reference:
        """Subtracts the second scalar from the first."""
        return self.op("Sub", one, two)

    def product(self, vector: Reference) -> Reference:
        """Returns the product of a vector of sizes."""
        return self.reduced("Prod", vector)

    def reduced(self, type: str, vector: Reference) -> Reference:
        """Reduces a vector of sizes to a scalar, by an operation such as `Sum`."""
        return self.op(type, vector, self.scalar(0))

    def op(self, type: str, *inputs: Reference, **attributes: Any) -> Reference:
        """Writes an operation with one output on the host."""
        return self._build.op(type, inputs, HOST, **attributes)[0]

    def imported(self, request: Request) -> Reference:
        """Returns a size that the enclosing function passes as an argument.

        Its first request adds the argument.

        Raises:
            RuntimeError: If there is no enclosing function.
        """
        if self._values.parent is None:
            raise RuntimeError(
                f"A size has no source in the graph. Received: {request}."
            )
        if request not in self.imports:
            self.imports[request] = self._build.writer.add_input(
                "size", tf.int32
            )
        return self.imports[request]

    def exported(self, request: Request) -> Reference:
        """Computes the size that a body has requested by `imported`."""
        method, *arguments = request
        compute: Callable[..., Reference] = getattr(self, cast(str, method))
        return compute(*arguments)
