"""The scope in which a program is drawn: its values and its lines.

Each line is run as soon as it is drawn. So shapes and values are known when the
next line is drawn, and lines that TensorFlow refuses are left out.
"""

import numpy as np
import tensorflow as tf
from hypothesis import strategies

from tests.partitioner.program import indented

MOST_ELEMENTS = 1500
MOST_AXES = 5

_LARGEST_WHOLE = {"float16": 64, "float32": 1 << 14}
"""Largest whole numbers by type whose sums are still exact."""

KINDS = {
    "any": lambda dtype: True,
    "bool": lambda dtype: dtype == tf.bool,
    "float": lambda dtype: dtype.is_floating,
    "index": lambda dtype: dtype in (tf.int32, tf.int64),
    "number": lambda dtype: dtype.is_floating or dtype.is_integer,
    "wide": lambda dtype: dtype in (tf.float32, tf.float64),
}
"""Kinds of dtypes, as predicates by name."""


class Skip(Exception):
    """Raised if no value in the scope fits an operation."""


class Value:
    """A tensor with a name.

    Attributes:
        name: Its name in the program.
        tensor: Its value on one device.
        exact: Whether results on replicas must be bit-identical: integers,
            and floats that are small whole numbers.
    """

    def __init__(self, name, tensor, exact):
        self.name = name
        self.tensor = tensor
        self.exact = exact or not tensor.dtype.is_floating

    def __str__(self):
        return self.name

    @property
    def dtype(self):
        """Its `tf.DType`."""
        return self.tensor.dtype

    @property
    def type(self):
        """Source code of its dtype."""
        return f"tf.{self.dtype.name}"

    @property
    def shape(self):
        """Its shape as a tuple of integers."""
        return tuple(self.tensor.shape)

    @property
    def rank(self):
        """Its number of axes."""
        return len(self.shape)


class Scope:
    """The body of a function, as it is drawn.

    Args:
        draw: Hypothesis's function that draws.
        names: Iterator of numbers for names.
        around: The scope around this one, or `None`.
        in_loop: Whether its lines are run repeatedly.

    Attributes:
        values: The function's values so far, in their order.
        variables: `{name: tf.Variable}`.
        is_sum: Names of variables with a partial sum on each replica.
        lines: The lines so far.
        depth: Number of enclosing functions.
    """

    def __init__(self, draw, names, around=None, in_loop=False):
        self._draw = draw
        self._names = names
        self._around = around
        self._functions = {} if around is None else dict(around._functions)
        self.values = []
        self.variables = {} if around is None else around.variables
        self.is_sum = set() if around is None else around.is_sum
        self.lines = []
        self.depth = 0 if around is None else around.depth + 1
        self.in_loop = in_loop or (around is not None and around.in_loop)

    # Draws -------------------------------------------------------------------

    def integer(self, least, most):
        """Draws an integer, both ends included; shrinks to the least."""
        return self._draw(strategies.integers(least, most))

    def choice(self, items):
        """Draws one of several items; shrinks to the first."""
        items = list(items)
        if not items:
            raise Skip
        return items[self.integer(0, len(items) - 1)]

    def flag(self):
        """Draws a boolean."""
        return self._draw(strategies.booleans())

    def chance(self, most):
        """Draws a boolean that is true once in `most` times."""
        return self.integer(0, most - 1) == most - 1

    def permutation(self, count):
        """Draws a permutation of the integers from 0 to `count` - 1."""
        return self._draw(strategies.permutations(range(count)))

    # Values ------------------------------------------------------------------

    @property
    def visible(self):
        """Returns all values that a line can use, the latest first."""
        outer = [] if self._around is None else self._around.visible
        return [*reversed(self.values), *outer]

    def value(
        self, kind="any", least=0, most=MOST_AXES, where=None, exact=False
    ):
        """Draws one of the values.

        Args:
            kind: Key of `KINDS`.
            least: Least number of axes.
            most: Largest number of axes.
            where: Additional predicate, or `None`.
            exact: Whether it must be exact: it is compared, counted or sorted.

        Raises:
            Skip: If there is none.
        """
        fit = [
            value
            for value in self.visible
            if KINDS[kind](value.dtype)
            and least <= value.rank <= most
            and (value.exact or not exact)
            and (where is None or where(value))
        ]
        if len(fit) > 3 and not self.chance(3):
            fit = fit[:3]  # Long chains find more than wide trees.
        return self.choice(fit)

    def alike(self, value, where=None, exact=False):
        """Draws a value of the same dtype."""
        return self.value(
            where=lambda other: (
                other.dtype == value.dtype and (where is None or where(other))
            ),
            exact=exact,
        )

    def axis(self, value, least=0):
        """Draws an axis of a value, counted from the front or the back."""
        if value.rank <= least:
            raise Skip
        axis = self.integer(least, value.rank - 1)
        return axis - value.rank if self.chance(3) else axis

    def size(self, value, axis):
        """Returns source code of an axis's size: a number or `tf.shape`."""
        if self.flag():
            return f"tf.shape({value})[{axis}]"
        return str(value.shape[axis])

    def sizes(self, value):
        """Returns source code of the sizes of all axes."""
        if self.flag():
            return f"tf.shape({value})"
        inner = ", ".join(self.size(value, axis) for axis in range(value.rank))
        return f"[{inner}]"

    def constant(self, shape, dtype):
        """Returns source code of a constant of small whole numbers."""
        dtype = tf.as_dtype(dtype)
        count = int(np.prod(shape))
        factor, shift = self.integer(1, 3), self.integer(0, 2)
        numbers = f"tf.range({count}) * {factor} % 5 - {shift}"
        return f"tf.reshape(tf.cast({numbers}, tf.{dtype.name}), {list(shape)})"

    # Lines -------------------------------------------------------------------

    def name(self, prefix="v"):
        """Returns an unused name."""
        return f"{prefix}{next(self._names)}"

    def let(self, expression, *sources):
        """Adds a value.

        Args:
            expression: Source code of the value.
            *sources: `Value`s that it is computed from. If there are some and
                all are exact, small whole numbers are exact, too.

        Returns:
            The `Value`.

        Raises:
            Skip: If one device refuses it, or it is too large.
        """
        name = self.name()
        (value,) = self.add([f"{name} = {expression}"], [name], sources)
        return value

    def unpack(self, expression, count, *sources):
        """Adds the values of a sequence; see `let`."""
        names = [self.name() for _ in range(count)]
        return self.add([f"{', '.join(names)}, = {expression}"], names, sources)

    def add(self, lines, names=(), sources=()):
        """Adds lines, and the values that they assign; see `let`."""
        exact = bool(sources) and all(source.exact for source in sources)
        known = self.namespace()
        try:
            exec("\n".join(lines), known)
            tensors = [tf.convert_to_tensor(known[name]) for name in names]
        except Exception as error:  # Whatever TensorFlow raises.
            raise Skip from error
        if any(_is_too_large(tensor) for tensor in tensors):
            raise Skip
        made = [
            Value(name, tensor, exact and _is_whole(tensor))
            for name, tensor in zip(names, tensors)
        ]
        self.lines += lines
        self.values += made
        return made

    def namespace(self):
        """Returns all names that a line can use, with their values."""
        known = {"tf": tf, **self.variables, **self._functions}
        known |= {value.name: value.tensor for value in self.visible}
        return known

    # Functions ---------------------------------------------------------------

    def function(self, arguments, draw_body, in_loop=False, extra=()):
        """Adds a function.

        Args:
            arguments: `Value`s that it is called with.
            draw_body: Function of its `Scope` and its parameters' `Value`s;
                returns the results: `Value`s or source code.
            in_loop: Whether it is called repeatedly, each time with its last
                results.
            extra: `Value`s of additional arguments before `arguments`.

        Returns:
            `(name, results)`.
        """
        inner = Scope(self._draw, self._names, self, in_loop)
        given = [
            Value(self.name("a"), value.tensor, value.exact and not in_loop)
            for value in arguments
        ]
        inner.values += [*extra, *given]
        results = draw_body(inner, given)
        name = self.name("f")
        names = ", ".join(map(str, [*extra, *given]))
        returned = "".join(f"{result}, " for result in results).strip()
        lines = [
            f"def {name}({names}):",
            *indented([*inner.lines, f"return {returned}"]).splitlines(),
        ]
        known = self.namespace()
        exec("\n".join(lines), known)
        self._functions[name] = known[name]
        self.lines += lines
        return name, results


def _is_too_large(tensor):
    if tensor.shape.rank > MOST_AXES or int(tf.size(tensor)) > MOST_ELEMENTS:
        return True
    if not tensor.dtype.is_floating:
        return tensor.dtype not in (tf.int32, tf.int64, tf.bool)
    array = np.abs(tensor.numpy().astype(np.float64))
    return bool(array.size and not array.max() < 1e4)


def _is_whole(tensor):
    if not tensor.dtype.is_floating:
        return True
    array = tensor.numpy().astype(np.float64)
    if (array != np.round(array)).any():
        return False
    most = _LARGEST_WHOLE.get(tensor.dtype.name, 1 << 14)
    return np.abs(array).max(initial=0) <= most
