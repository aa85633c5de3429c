"""Reads and updates of variables."""

from tests.partitioner.operations.table import operation
from tests.partitioner.scope import Skip


@operation(3)
def read(scope):
    """What a variable holds now."""
    name = scope.choice(scope.variables)
    scope.let(f"tf.identity({name})")


@operation(4)
def assign(scope):
    """Something of the variable's shape."""
    name = _variable(scope)
    variable = scope.variables[name]
    x = scope.value(
        where=lambda v: (
            v.dtype == variable.dtype
            and v.shape[v.rank - variable.shape.rank :] == tuple(variable.shape)
        )
    )
    # Axes in front of the variable's go.
    axes = list(range(x.rank - variable.shape.rank))
    value = f"tf.reduce_sum({x}, {axes})" if axes else str(x)
    methods = ["assign_add", "assign_sub"]
    if name not in scope.is_sum:
        methods.append("assign")
    if scope.flag() and variable.dtype.is_floating:
        value = f"{value} * 0.5"
    scope.add([f"{name}.{scope.choice(methods)}({value})"])


@operation(2)
def assign_sum(scope):
    """The sum or mean of anything, as a metric has it."""
    name = _variable(scope)
    variable = scope.variables[name]
    x = scope.value("number")
    text = scope.choice(["tf.reduce_sum", "tf.reduce_mean"])
    if not x.exact and not variable.dtype.is_floating:
        raise Skip
    if text == "tf.reduce_mean" and not variable.dtype.is_floating:
        raise Skip
    dtype = f"tf.{variable.dtype.name}"
    shape = list(variable.shape)
    if text == "tf.reduce_mean":
        x = _without_overflow(x)
    scope.add(
        [f"{name}.assign_add(tf.fill({shape}, tf.cast({text}({x}), {dtype})))"]
    )


@operation(2)
def momentum(scope):
    """The updates of an optimizer: one of a variable, and one of another."""
    first = _variable(scope, lambda v: v.dtype.is_floating, is_sum=False)
    shape, dtype = scope.variables[first].shape, scope.variables[first].dtype
    second = _variable(
        scope, lambda v: v.shape == shape and v.dtype == dtype, is_sum=False
    )
    x = _without_overflow(scope.value("float"))
    scope.add(
        [
            f"{first}.assign(0.9 * {first} + "
            f"tf.cast(tf.reduce_mean({x}), tf.{dtype.name}))",
            f"{second}.assign_sub(0.1 * {first})",
        ]
    )


@operation(2)
def scatter(scope):
    """Some rows of a variable are changed."""
    name = _variable(scope, lambda v: v.shape.rank and v.shape[0], is_sum=False)
    variable = scope.variables[name]
    x = scope.value(
        "number",
        least=1,
        where=lambda v: (
            v.dtype == variable.dtype
            and v.shape[1:] == tuple(variable.shape[1:])
        ),
    )
    indices = scope.value("index", 1, 1, lambda v: v.shape[0] == x.shape[0])
    where = f"tf.math.floormod({indices}, {variable.shape[0]})"
    text = scope.choice(
        [
            f"{name}.scatter_add(tf.IndexedSlices({x}, {where}))",
            f"{name}.scatter_sub(tf.IndexedSlices({x}, {where}))",
            f"{name}.scatter_update(tf.IndexedSlices("
            f"tf.zeros_like({x}), {where}))",
        ]
    )
    scope.add([text])


@operation(2)
def look_up(scope):
    """Rows of a variable."""
    name = _variable(scope, lambda v: v.shape.rank and v.shape[0], is_sum=False)
    indices = scope.value("index", most=2)
    size = scope.variables[name].shape[0]
    where = f"tf.math.floormod({indices}, {size})"
    text = scope.choice(
        [
            f"tf.nn.embedding_lookup({name}, {where})",
            f"tf.gather({name}, {where})",
        ]
    )
    scope.let(text)


def _variable(scope, where=None, is_sum=True):
    return scope.choice(
        name
        for name, variable in scope.variables.items()
        if (where is None or where(variable))
        and (is_sum or name not in scope.is_sum)
    )


def _without_overflow(x):
    """Text for what a mean is made of.

    On one device the sum behind a mean of float16 overflows; the means of
    shares do not.
    """
    return f"tf.cast({x}, tf.float32)" if x.dtype == "float16" else str(x)
