"""What a program is drawn in: the values that there are, and new lines.

Each line is run as soon as it is drawn, so that shapes and values are known to
who draws the next one, and a line that TensorFlow refuses is left out.
"""

import numpy as np
import tensorflow as tf
from hypothesis import strategies

from tests.partitioner.program import indented

MOST_ELEMENTS = 1500
MOST_AXES = 5

_WHOLE = {"bfloat16": 16, "float16": 64, "float32": 1 << 14}
"""Largest whole numbers of which sums are exact, with room for the sums."""


class Skip(Exception):
    """There is nothing here that an operation could be drawn for."""


class Value:
    """A tensor with a name.

    Attributes:
        name: Its name in the program.
        tensor: What it is on one device.
        exact: Whether all replicas can be asked for the same bits: whole
            numbers that are small enough.
    """

    def __init__(self, name, tensor, exact):
        self.name = name
        self.tensor = tensor
        self.exact = exact

    def __str__(self):
        return self.name

    @property
    def dtype(self):
        """Its `tf.DType`."""
        return self.tensor.dtype

    @property
    def shape(self):
        """Its shape as a tuple of integers."""
        return tuple(self.tensor.shape)

    @property
    def rank(self):
        """Its number of axes."""
        return len(self.shape)

    @property
    def array(self):
        """Its values."""
        return self.tensor.numpy()

    def is_apart_from(self, *points):
        """Whether no element is so near a point that rounding could decide."""
        if self.exact:
            return True
        array = np.asarray(self.array, np.float64)
        if not array.size or not np.isfinite(array).all():
            return False
        near = 0.02 * (1 + np.abs(array).max())
        return all(np.abs(array - point).min() > near for point in points)


class Scope:
    """The body of a function, as it is drawn.

    Args:
        draw: Hypothesis's function that draws.
        names: Iterator of numbers for names.
        around: The scope around this one, or `None`.

    Attributes:
        values: The values that the function has so far, in their order.
        variables: `{name: tf.Variable}`.
        lines: The lines so far.
        depth: How many functions are around it.
        in_loop: Whether its lines are run more often than once.
    """

    def __init__(self, draw, names, around=None, in_loop=False):
        self._draw = draw
        self._names = names
        self._around = around
        self.values = []
        self.variables = {} if around is None else around.variables
        self.lines = []
        self.depth = 0 if around is None else around.depth + 1
        self.in_loop = in_loop or (around is not None and around.in_loop)

    # Draws -------------------------------------------------------------------

    def integer(self, least, most):
        """An integer, both ends included; the least one is simplest."""
        return self._draw(strategies.integers(least, most))

    def choice(self, items):
        """One of several; the first one is simplest."""
        items = list(items)
        if not items:
            raise Skip
        return items[self.integer(0, len(items) - 1)]

    def flag(self):
        """Whether something optional is done."""
        return self._draw(strategies.booleans())

    def chance(self, most):
        """True once in so many times."""
        return self.integer(0, most - 1) == most - 1

    def some(self, items, least=0):
        """Some of several, in their order."""
        items = list(items)
        kept = [item for item in items if self.flag()]
        return kept if len(kept) >= least else items[:least]

    def permutation(self, count):
        """Numbers from 0 in some order."""
        return self._draw(strategies.permutations(range(count)))

    # Values ------------------------------------------------------------------

    @property
    def visible(self):
        """All values that a line can use, the latest first."""
        outer = [] if self._around is None else self._around.visible
        return [*reversed(self.values), *outer]

    def value(self, kind="any", least=0, most=MOST_AXES, where=None):
        """One of the values.

        Args:
            kind: Key of `KINDS`.
            least: Least number of axes.
            most: Largest number of axes.
            where: What else must hold for it.

        Raises:
            Skip: If there is none.
        """
        fit = [
            value
            for value in self.visible
            if KINDS[kind](value.dtype)
            and least <= value.rank <= most
            and (where is None or where(value))
        ]
        if len(fit) > 3 and not self.chance(3):
            fit = fit[:3]  # Long chains find more than wide trees.
        return self.choice(fit)

    def exact(self, kind="number", least=0, most=MOST_AXES, where=None):
        """One whose elements can be compared, counted and sorted."""

        def may(value):
            return value.exact and (where is None or where(value))

        return self.value(kind, least, most, may)

    def alike(self, value, where=None):
        """One of the same type."""
        return self.value(
            where=lambda other: other.dtype == value.dtype
            and (where is None or where(other))
        )

    def axis(self, value, least=0):
        """An axis of a value, counted from the front or from the back."""
        if value.rank <= least:
            raise Skip
        axis = self.integer(least, value.rank - 1)
        return axis - value.rank if self.chance(3) else axis

    def size(self, value, axis):
        """Text for the size of an axis: a number, or what asks for it."""
        if self.flag():
            return f"tf.shape({value})[{axis}]"
        return str(value.shape[axis])

    def sizes(self, value):
        """Text for the sizes of all axes."""
        if self.flag():
            return f"tf.shape({value})"
        inner = ", ".join(self.size(value, axis) for axis in range(value.rank))
        return f"[{inner}]"

    def constant(self, shape, dtype):
        """Text for a table of small whole numbers."""
        dtype = tf.as_dtype(dtype)
        count = int(np.prod(shape))
        factor, shift = self.integer(1, 3), self.integer(0, 2)
        numbers = f"tf.range({count}) * {factor} % 5 - {shift}"
        return (
            f"tf.reshape(tf.cast({numbers}, tf.{dtype.name}), {list(shape)})"
        )

    # Lines -------------------------------------------------------------------

    def name(self, prefix="v"):
        """A name that nothing has yet."""
        return f"{prefix}{next(self._names)}"

    def let(self, expression, exact=False):
        """Adds a value.

        Args:
            expression: Text of what it is.
            exact: Whether the same bits can be asked for if it turns out to be
                small whole numbers.

        Returns:
            The `Value`.

        Raises:
            Skip: If one device refuses it, or it is too large.
        """
        (value,) = self.let_all([expression], exact)
        return value

    def let_all(self, expressions, exact=False):
        """Adds several values at once; see `let`."""
        names = [self.name() for _ in expressions]
        line = f"{', '.join(names)} = {', '.join(expressions)}"
        return self.add([line], names, exact)

    def unpack(self, expression, count, exact=False):
        """Adds the values of a sequence; see `let`."""
        names = [self.name() for _ in range(count)]
        return self.add([f"{', '.join(names)}, = {expression}"], names, exact)

    def add(self, lines, names=(), exact=False):
        """Adds lines, and the values that they give names to; see `let`."""
        known = self.namespace()
        try:
            exec("\n".join(lines), known)
            tensors = [tf.convert_to_tensor(known[name]) for name in names]
        except Exception as error:  # Whatever TensorFlow raises.
            raise Skip from error
        if any(_is_too_large(tensor) for tensor in tensors):
            raise Skip
        made = [
            Value(name, tensor, _is_exact(tensor, exact))
            for name, tensor in zip(names, tensors)
        ]
        self.lines += lines
        self.values += made
        return made

    def namespace(self):
        """All names that a line can use, and what they are."""
        known = {"tf": tf, **self.variables}
        known |= {value.name: value.tensor for value in self.visible}
        return known

    # Functions ---------------------------------------------------------------

    def function(self, arguments, draw_body, in_loop=False, extra=()):
        """Adds a function.

        Args:
            arguments: `Value`s that it is called with.
            draw_body: Function of its `Scope` and of its own values of the
                arguments that returns what it returns: `Value`s or texts.
            in_loop: Whether it is called more often than once.
            extra: Names of arguments in front of these.

        Returns:
            `(name, results)`.
        """
        inner = Scope(self._draw, self._names, self, in_loop)
        given = [
            Value(self.name("a"), argument.tensor, argument.exact)
            for argument in arguments
        ]
        inner.values += given
        results = draw_body(inner, given)
        name = self.name("f")
        names = ", ".join([*extra, *map(str, given)])
        returned = ", ".join(map(str, results))
        body = indented([*inner.lines, f"return {returned},"])
        self.add([f"def {name}({names}):", *body.splitlines()])
        return name, results


KINDS = {
    "any": lambda dtype: True,
    "bool": lambda dtype: dtype == tf.bool,
    "complex": lambda dtype: dtype.is_complex,
    "float": lambda dtype: dtype.is_floating,
    "index": lambda dtype: dtype in (tf.int32, tf.int64),
    "inexact": lambda dtype: dtype.is_floating or dtype.is_complex,
    "integer": lambda dtype: dtype.is_integer,
    "number": lambda dtype: dtype.is_floating
    or dtype.is_complex
    or dtype.is_integer,
    "real": lambda dtype: dtype.is_floating or dtype.is_integer,
    "wide": lambda dtype: dtype in (tf.float32, tf.float64),
}
"""Kinds of types."""


def _is_too_large(tensor):
    if tensor.shape.rank > MOST_AXES or int(tf.size(tensor)) > MOST_ELEMENTS:
        return True
    if tensor.dtype.is_floating and bool(
        tf.reduce_any(tf.math.is_finite(tensor))
    ):
        finite = tf.where(tf.math.is_finite(tensor), tensor, 0)
        return float(tf.reduce_max(tf.abs(tf.cast(finite, tf.float64)))) > 1e4
    return False


def _is_exact(tensor, exact):
    dtype = tensor.dtype
    if not (dtype.is_floating or dtype.is_complex):
        return True
    if not exact:
        return False
    array = tensor.numpy().astype(np.complex128 if dtype.is_complex else float)
    parts = np.stack([array.real, array.imag])
    if not np.isfinite(parts).all() or (parts != np.round(parts)).any():
        return False
    return np.abs(parts).max(initial=0) <= _WHOLE.get(dtype.name, 1 << 14)
