"""Symbolic sizes: polynomials in dimensions that are unknown while tracing.

A batch has `rows` rows, sentences have `time` tokens: such numbers are only
known when the step runs. Sizes computed from them (`rows * time`, `time + 1`)
are known symbolically, and that is enough to tell whether a reshape keeps rows
separate. A size is a Python `int` if it is known, a `Size` if it depends on
symbols, and `None` if nothing is known of it.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, overload

if TYPE_CHECKING:
    import tensorflow as tf

MaybeNone: TypeAlias = Any
"""Stands for `None` in a union whose readers know whether a value is `None`.

As in typeshed, `X | MaybeNone` needs no cast where, say, the rank is known."""

Source: TypeAlias = tuple[Any, int]
"""A tensor of the graph (`graph.Tensor`), and the number of one of its axes or
entries."""

_ids = itertools.count()
_num_joins = 0


class Symbol:
    """A dimension whose value is only known when the graph runs.

    Args:
        name: Name in messages and dumps.
        source: `(tensor, axis)`: the axis of a graph's tensor whose size it is.
        is_rows: Whether it is the number of rows of an input.
        is_entry: Whether it is an entry of a vector instead. The source is then
            `(tensor, index)`.
        is_length: Whether it is the length of an inner axis of an input, and the
            program divides such axes.
    """

    __slots__ = (
        "id",
        "name",
        "source",
        "is_rows",
        "is_entry",
        "is_length",
        "_joined",
    )

    def __init__(
        self,
        name: str,
        source: "Source | MaybeNone" = None,
        is_rows: bool = False,
        is_entry: bool = False,
        is_length: bool = False,
    ) -> None:
        self.id = next(_ids)
        self.name = name
        self.source = source
        self.is_rows = is_rows
        self.is_entry = is_entry
        self.is_length = is_length
        self._joined: Symbol | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def joined(self) -> "Symbol":
        """The symbol that stands for all symbols joined with this one."""
        return self if self._joined is None else self._joined.joined

    def join(self, other: "Symbol") -> None:
        """Makes two symbols equal, in all sizes that contain them."""
        global _num_joins
        first, second = self.joined, other.joined
        if first is not second:
            second._joined = first
            _num_joins += 1


Terms: TypeAlias = dict[tuple[Symbol, ...], int]
"""Coefficients by monomial: a tuple of symbols, sorted by `id`, in which each
symbol occurs as often as its power."""


class Size:
    """A polynomial with integer coefficients; immutable.

    It is created by `of` and by arithmetic. Results that depend on no symbol
    are plain integers.
    """

    __slots__ = ("_terms", "_as_of")

    def __init__(self, terms: "Terms") -> None:
        # In terms of the symbols as they were joined when `_as_of` was set.
        self._terms = terms
        self._as_of = _num_joins

    @property
    def terms(self) -> "Terms":
        """Coefficients by monomial, in terms of the symbols joined by now."""
        if self._as_of != _num_joins:
            terms: Terms = {}
            for symbols, coefficient in self._terms.items():
                key = tuple(sorted((s.joined for s in symbols), key=_number))
                terms[key] = terms.get(key, 0) + coefficient
            self._terms, self._as_of = terms, _num_joins
        return self._terms

    @overload
    def __add__(self, other: "SizeLike") -> "SizeLike": ...

    @overload
    def __add__(self, other: None) -> None: ...

    def __add__(self, other: "SizeLike | None") -> "SizeLike | None":
        if other is None:
            return None
        terms = dict(self.terms)
        for symbols, coefficient in _terms(other).items():
            terms[symbols] = terms.get(symbols, 0) + coefficient
        return _normal(terms)

    __radd__ = __add__

    @overload
    def __sub__(self, other: "SizeLike") -> "SizeLike": ...

    @overload
    def __sub__(self, other: None) -> None: ...

    def __sub__(self, other: "SizeLike | None") -> "SizeLike | None":
        return None if other is None else self + other * -1

    @overload
    def __rsub__(self, other: "SizeLike") -> "SizeLike": ...

    @overload
    def __rsub__(self, other: None) -> None: ...

    def __rsub__(self, other: "SizeLike | None") -> "SizeLike | None":
        return None if other is None else self * -1 + other

    @overload
    def __mul__(self, other: "SizeLike") -> "SizeLike": ...

    @overload
    def __mul__(self, other: None) -> None: ...

    def __mul__(self, other: "SizeLike | None") -> "SizeLike | None":
        if other is None:
            return None
        terms: Terms = {}
        for left, a in self.terms.items():
            for right, b in _terms(other).items():
                key = tuple(sorted(left + right, key=_number))
                terms[key] = terms.get(key, 0) + a * b
        return _normal(terms)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __repr__(self) -> str:
        parts = []
        for symbols, coefficient in self.terms.items():
            factors = [str(symbol) for symbol in symbols]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            parts.append("*".join(factors))
        return " + ".join(parts)

    @property
    def symbols(self) -> set[Symbol]:
        """All symbols that the size depends on, as a set."""
        return {symbol for symbols in self.terms for symbol in symbols}


SizeLike = int | Size
"""A known size: a number, or a polynomial in symbols."""

StaticShape: TypeAlias = tuple[int | None, ...]
"""Sizes of axes; `None` stands for one that TensorFlow doesn't know."""

Shape: TypeAlias = tuple[SizeLike | None, ...]
"""Sizes of axes, by symbol too; `None` stands for an unknown size."""

Value: TypeAlias = SizeLike | Shape | None
"""A scalar or vector of integers, by symbol too; `None` if it is unknown. See
`graph.Tensor`."""


def of(symbol: Symbol) -> Size:
    """Returns the polynomial that consists of one symbol."""
    return Size({(symbol,): 1})


@overload
def product(sizes: Iterable[SizeLike]) -> SizeLike: ...


@overload
def product(sizes: Iterable[SizeLike | None]) -> SizeLike | None: ...


def product(sizes: Iterable[SizeLike | None]) -> SizeLike | None:
    """Returns the product of sizes; `None` if one is unknown."""
    result: SizeLike | None = 1
    for size in sizes:
        if result is None or size is None:
            return None
        result = result * size
    return result


@overload
def sum_of(sizes: Iterable[SizeLike]) -> SizeLike: ...


@overload
def sum_of(sizes: Iterable[SizeLike | None]) -> SizeLike | None: ...


def sum_of(sizes: Iterable[SizeLike | None]) -> SizeLike | None:
    """Returns the sum of sizes; `None` if one is unknown."""
    result: SizeLike | None = 0
    for size in sizes:
        if result is None or size is None:
            return None
        result = result + size
    return result


def is_length(value: object) -> TypeGuard[Size]:
    """Whether a value is the length of an axis of an input; see `Symbol`."""
    return isinstance(value, Size) and any(
        symbol.is_length and value == of(symbol) for symbol in value.symbols
    )


def are_integers(value: object) -> bool:
    """Whether a value is a tuple of integers, without symbols or `None`."""
    return isinstance(value, tuple) and all(
        isinstance(size, int) for size in value
    )


def as_tuple(value: Any) -> tuple:
    """Returns a tuple as it is, anything else as a tuple of one."""
    return value if isinstance(value, tuple) else (value,)


def as_scalar(value: Any) -> Any:
    """Unpacks a tuple of one size; returns anything else as it is."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def filled_in(shape: tuple, other: tuple | None) -> tuple:
    """Fills unknown sizes of a shape from another shape.

    Returns `shape` unchanged if `other` is unknown or has another rank.
    """
    if other is None or len(other) != len(shape):
        return shape
    return tuple(b if a is None else a for a, b in zip(shape, other))


def divide(size: SizeLike | None, divisor: SizeLike | None) -> SizeLike | None:
    """Returns the exact quotient of two sizes; `None` if there is none.

    Also `None` if a size is unknown, if there is a quotient for some values of
    a symbol only (`rows / 2`), or if both divisor and quotient have several
    terms.
    """
    if size is None or divisor is None:
        return None
    if isinstance(size, int) and isinstance(divisor, int):
        if divisor == 0 or size % divisor:
            return None
        return size // divisor
    if size == 0:
        return 0
    if size == divisor:
        return 1
    if isinstance(divisor, int) or len(divisor.terms) == 1:
        return _divide_terms(_terms(size), _terms(divisor))
    leading = max(_terms(size), key=len)
    quotient = _divide_terms(
        {leading: _terms(size)[leading]},
        dict([max(divisor.terms.items(), key=lambda term: len(term[0]))]),
    )
    if quotient is not None and quotient * divisor == size:
        return quotient
    return None


def evaluate(size: SizeLike, values: Mapping[Symbol, int]) -> int:
    """Evaluates a size for given values of its symbols.

    Args:
        values: Maps the symbols, each as its `Symbol.joined`, to integers.
    """
    return sum(
        coefficient * math.prod(values[symbol] for symbol in symbols)
        for symbols, coefficient in _terms(size).items()
    )


def _terms(size: SizeLike) -> Terms:
    return size.terms if isinstance(size, Size) else {(): size} if size else {}


def _normal(terms: Terms) -> SizeLike:
    terms = {key: terms[key] for key in sorted(terms, key=_order) if terms[key]}
    if not terms:
        return 0
    if list(terms) == [()]:
        return terms[()]
    return Size(terms)


def _order(symbols: tuple[Symbol, ...]) -> tuple[int, list[int]]:
    return len(symbols), [symbol.id for symbol in symbols]


def _number(symbol: Symbol) -> int:
    return symbol.id


def _divide_terms(terms: Terms, divisor: Terms) -> SizeLike | None:
    ((symbols, coefficient),) = divisor.items() or [((), 0)]
    if coefficient == 0:
        return None
    quotient: Terms = {}
    for key, value in terms.items():
        rest = list(key)
        for symbol in symbols:
            if symbol not in rest:
                return None
            rest.remove(symbol)
        if value % coefficient:
            return None
        quotient[tuple(rest)] = value // coefficient
    return _normal(quotient)


def fits(value: SizeLike | None, dtype: "tf.DType", rows: int = 1) -> bool:
    """Whether a size fits an integer type without overflow.

    An unknown size fits, and so does any size if the type isn't an integer's.
    A `Size` fits types of 32 bits or more if each of its terms does.

    Args:
        value: Integer, `Size` or `None`.
        rows: Assumed value of the symbols in a term, multiplied. Defaults to
            `1`.
    """
    if value is None or not dtype.is_integer:
        return True
    if isinstance(value, int):
        return dtype.min <= value <= dtype.max
    # The number of rows is unknown: only types of 32 bits or more are safe.
    return dtype.size >= 4 and all(
        abs(number) * rows <= dtype.max for number in value.terms.values()
    )
