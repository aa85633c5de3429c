"""Operations on each element, with broadcasting."""

import numpy as np

from tests.partitioner.operations.table import operation

_SMOOTH = """
tf.tanh({x}) tf.sigmoid({x}) tf.exp(-tf.abs({x})) tf.math.log1p({x}*{x})
tf.sqrt({x}*{x}+1) tf.nn.softplus({x}) tf.math.erf({x}) tf.nn.silu({x})
tf.sin({x}) tf.math.rsqrt({x}*{x}+1) tf.nn.softsign({x}) tf.nn.gelu({x})
tf.nn.elu({x}) tf.nn.selu({x}) {x}/3 2-{x} tf.atan({x}) tf.cosh(tf.tanh({x}))
tf.math.reciprocal({x}*{x}+1) tf.pow(tf.abs({x})+1,2)
""".split()

_WHOLE = """
-{x} tf.square({x}) tf.identity({x}) tf.stop_gradient({x}) tf.zeros_like({x})
tf.ones_like({x}) {x}*2 {x}+1 tf.add_n([{x},{x},{x}])
tf.ensure_shape({x},[None]*{rank}) tf.grad_pass_through(tf.square)({x})
""".split()

_KINKED = """
tf.nn.relu({x}) tf.abs({x}) tf.sign({x}) tf.nn.leaky_relu({x}) tf.nn.relu6({x})
tf.clip_by_value({x},-1,2) {x}//2 {x}%3
""".split()


@operation(3)
def smooth(scope):
    """A smooth function; rounding errors stay small."""
    x = scope.value("float")
    scope.let(scope.choice(_SMOOTH).format(x=x))


@operation(2)
def of_whole_numbers(scope):
    """What makes whole numbers of whole numbers."""
    x = scope.value("number")
    scope.let(scope.choice(_WHOLE).format(x=x, rank=x.rank), x)


@operation()
def with_kinks(scope):
    """What isn't smooth, of numbers that no rounding moves."""
    x = scope.value("number", exact=True)
    scope.let(scope.choice(_KINKED).format(x=x), x)


@operation(5)
def binary(scope):
    """Two values, one of them broadcast to the other."""
    x = scope.value("number")
    y = _partner(scope, x)
    x, y = (x, y) if scope.flag() else (y, x)
    operator = scope.choice("+-*")
    scope.let(f"{x} {operator} {y}", x, y)


@operation(3)
def beside_some(scope):
    """Beside values of which the data decide how many there are."""
    x = scope.value("number", least=1)
    y = scope.value(
        "number",
        least=1,
        where=lambda v: (
            (v.dtype, v.rank) == (x.dtype, x.rank) and v.shape[0] > 0
        ),
    )
    count = x.shape[0] if x.shape[0] > 1 else scope.integer(1, 3)
    if scope.chance(3):
        count = 1
    some = f"tf.boolean_mask({y}, tf.range(tf.shape({y})[0]) < {count})"
    scope.let(f"{x} {scope.choice('+-*')} {some}", x, y)


@operation(2)
def binary_inexact(scope):
    """Functions of two values that don't keep numbers whole."""
    x = scope.value("float")
    y = _partner(scope, x)
    text = scope.choice(
        [
            "{x} / ({y} * {y} + 1)",
            "tf.math.divide_no_nan({x}, tf.nn.softplus({y}) + 1)",
            "tf.math.squared_difference({x}, {y})",
            "tf.math.xlogy({x}, {y} * {y} + 1)",
            "tf.atan2({x}, {y} * {y} + 1)",
            "tf.pow({x} * {x} + 1, tf.tanh({y}))",
        ]
    )
    scope.let(text.format(x=x, y=y))


@operation(2)
def binary_exact(scope):
    """Comparisons and the like."""
    x = scope.value("number", exact=True)
    y = _partner(scope, x, exact=True)
    text = scope.choice(
        [
            "{x} < {y}",
            "{x} >= {y}",
            "tf.equal({x}, {y})",
            "tf.not_equal({x}, {y})",
            "tf.maximum({x}, {y})",
            "tf.minimum({x}, {y})",
            "tf.math.floordiv({x}, {y} * {y} + 1)",
            "tf.math.floormod({x}, {y} * {y} + 2)",
            "tf.math.mod({x}, {y} * {y} + 2)",
        ]
    )
    scope.let(text.format(x=x, y=y), x, y)


@operation()
def logical(scope):
    """Of truth values."""
    x = scope.value("bool")
    y = _partner(scope, x)
    text = scope.choice(["&", "|", "^"])
    scope.let(f"{x} {text} {y}" if scope.flag() else f"~{x}")


@operation(2)
def where(scope):
    """A choice by element, all three broadcast."""
    condition = scope.value("bool")
    x = scope.value(where=lambda value: _fits(value, condition))
    y = scope.alike(
        x, lambda value: _fits(value, condition) and _fits(value, x)
    )
    if scope.chance(4):
        y = "0" if x.dtype.name != "bool" else "False"
        scope.let(f"tf.where({condition}, {x}, {y})", x)
    else:
        scope.let(f"tf.where({condition}, {x}, {y})", x, y)


@operation()
def select_rows(scope):
    """`Select`, whose condition may be a vector for rows."""
    x = scope.value(least=1)
    y = scope.alike(x, lambda value: value.shape == x.shape)
    condition = scope.value(
        "bool", where=lambda value: value.shape in (x.shape, x.shape[:1])
    )
    scope.let(f"tf.compat.v1.where({condition}, {x}, {y})", x, y)


@operation()
def cast(scope):
    """Another type."""
    x = scope.value()
    types = ["float32", "int32", "float64", "int64", "bool", "float16"]
    dtype = scope.choice(types)
    if x.exact:
        scope.let(f"tf.cast({x}, tf.{dtype})", x)
    elif dtype.startswith("float"):
        scope.let(f"tf.cast({x}, tf.{dtype})")


@operation()
def bias_add(scope):
    """One number per channel."""
    x = scope.value("float", least=2)
    bias = scope.alike(x, lambda value: value.shape == x.shape[-1:])
    scope.let(f"tf.nn.bias_add({x}, {bias})", x, bias)


@operation()
def add_n(scope):
    """A sum of several of one shape."""
    x = scope.value("number")
    y = scope.alike(x, lambda value: value.shape == x.shape)
    z = scope.alike(x, lambda value: value.shape == x.shape)
    scope.let(f"tf.add_n([{x}, {y}, {z}])", x, y, z)


@operation(1)
def words(scope):
    """Numbers as text, whose minus is replaced."""
    x = scope.value("index")
    made = f"tf.strings.regex_replace(tf.strings.as_string({x}), '-', 'less ')"
    scope.let(f"tf.strings.length({made})", x)


def _partner(scope, value, exact=False):
    if scope.chance(5):
        return scope.let(scope.constant(value.shape[-1:], value.dtype), value)
    return scope.alike(value, lambda other: _fits(other, value), exact)


def _fits(one, two):
    try:
        shape = np.broadcast_shapes(one.shape, two.shape)
    except ValueError:
        return False
    return np.prod(shape) <= 1000
