"""Sizes that are not known while a graph is traced, as polynomials.

A batch has `rows` rows, sentences have `time` tokens: such numbers are only
known when the step runs, but what is computed from them (`rows * time`,
`time + 1`) is known symbolically, and that is enough to tell whether a reshape
keeps rows apart. A size is a Python `int` where it is known, a `Size` where it
depends on symbols, and `None` where nothing is known.
"""

import itertools

_ids = itertools.count()
_num_joins = 0


class Symbol:
    """A number that is only known when the graph runs.

    Args:
        name: What it is, for people.
        source: The `(tensor, axis)` of a graph whose size it is.
        is_rows: Whether it is the number of rows of an input.
        is_entry: Whether it is an entry of the source's value, a vector,
            instead: `(tensor, index)`.
    """

    __slots__ = ("id", "name", "source", "is_rows", "is_entry", "_joined")

    def __init__(self, name, source=None, is_rows=False, is_entry=False):
        self.id = next(_ids)
        self.name = name
        self.source = source
        self.is_rows = is_rows
        self.is_entry = is_entry
        self._joined = None

    def __repr__(self):
        return self.name

    @property
    def joined(self):
        """The symbol that stands for this one and all joined with it."""
        return self if self._joined is None else self._joined.joined

    def join(self, other):
        """Makes two symbols one number, in all sizes that were made of them."""
        global _num_joins
        first, second = self.joined, other.joined
        if first is not second:
            second._joined = first
            _num_joins += 1


class Size:
    """A polynomial with integer coefficients; immutable.

    Made by `of` and by arithmetic. Results that depend on no symbol are plain
    integers.
    """

    __slots__ = ("_terms", "_as_of")

    def __init__(self, terms):
        # {symbols in order of their numbers, each as often as its power:
        #  coefficient}
        self._terms = terms
        self._as_of = _num_joins

    @property
    def terms(self):
        """Coefficients by symbols, each as often as its power."""
        if self._as_of != _num_joins:
            terms = {}
            for symbols, coefficient in self._terms.items():
                key = tuple(sorted((s.joined for s in symbols), key=_number))
                terms[key] = terms.get(key, 0) + coefficient
            self._terms, self._as_of = terms, _num_joins
        return self._terms

    def __add__(self, other):
        if other is None:
            return None
        terms = dict(self.terms)
        for symbols, coefficient in _terms(other).items():
            terms[symbols] = terms.get(symbols, 0) + coefficient
        return _normal(terms)

    __radd__ = __add__

    def __sub__(self, other):
        return None if other is None else self + other * -1

    def __rsub__(self, other):
        return None if other is None else self * -1 + other

    def __mul__(self, other):
        if other is None:
            return None
        terms = {}
        for left, a in self.terms.items():
            for right, b in _terms(other).items():
                key = tuple(sorted(left + right, key=_number))
                terms[key] = terms.get(key, 0) + a * b
        return _normal(terms)

    __rmul__ = __mul__

    def __eq__(self, other):
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self):
        return hash(frozenset(self.terms.items()))

    def __repr__(self):
        parts = []
        for symbols, coefficient in self.terms.items():
            factors = [str(symbol) for symbol in symbols]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            parts.append("*".join(factors))
        return " + ".join(parts)

    @property
    def symbols(self):
        """All symbols that the size depends on, as a set."""
        return {symbol for symbols in self.terms for symbol in symbols}


SizeLike = int | Size
"""A size where it is known: as a number, or by symbol."""


def of(symbol):
    """The size that a symbol is."""
    return Size({(symbol,): 1})


def product(sizes):
    """The product of sizes, `None` where one is not known."""
    result = 1
    for size in sizes:
        if result is None or size is None:
            return None
        result = result * size
    return result


def sum_of(sizes):
    """The sum of sizes, `None` where one is not known."""
    result = 0
    for size in sizes:
        if result is None or size is None:
            return None
        result = result + size
    return result


def are_integers(value):
    """Whether a value is a tuple of numbers that are all known."""
    return isinstance(value, tuple) and all(
        isinstance(size, int) for size in value
    )


def as_tuple(value):
    """A size, or a tuple of sizes, as a tuple."""
    return value if isinstance(value, tuple) else (value,)


def as_scalar(value):
    """A size, or the only one of a tuple of one size, as it is by itself."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def filled_in(shape, other):
    """A shape, with another one's sizes where it knows none.

    As it is where the other isn't known, or has another rank.
    """
    if other is None or len(other) != len(shape):
        return shape
    return tuple(b if a is None else a for a, b in zip(shape, other))


def divide(size, divisor):
    """The exact quotient of two sizes, or `None` where there is none.

    `None` too where a symbol's value decides: `rows / 2`.
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


def evaluate(size, values):
    """The integer that a size is for given values of its symbols.

    Args:
        size: Integer or `Size`.
        values: Mapping from `Symbol` to integer.
    """
    return sum(
        coefficient * product(values[symbol] for symbol in symbols)
        for symbols, coefficient in _terms(size).items()
    )


def _terms(size):
    return size.terms if isinstance(size, Size) else {(): size} if size else {}


def _normal(terms):
    terms = {key: terms[key] for key in sorted(terms, key=_order) if terms[key]}
    if not terms:
        return 0
    if list(terms) == [()]:
        return terms[()]
    return Size(terms)


def _order(symbols):
    return len(symbols), [symbol.id for symbol in symbols]


def _number(symbol):
    return symbol.id


def _divide_terms(terms, divisor):
    ((symbols, coefficient),) = divisor.items() or [((), 0)]
    if coefficient == 0:
        return None
    quotient = {}
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


def fits(value, dtype, rows=1):
    """Whether a type holds a size; one that it doesn't hold wraps around.

    Args:
        value: Integer, `Size` or `None`.
        dtype: `tf.DType`.
        rows: What all symbols are taken for. Defaults to `1`.
    """
    if value is None or not dtype.is_integer:
        return True
    if isinstance(value, int):
        return dtype.min <= value <= dtype.max
    # How many rows there are is anyone's guess, but for 32 bits.
    return dtype.size >= 4 and all(
        abs(number) * rows <= dtype.max for number in value.terms.values()
    )
