"""Draws."""

from tests.partitioner.operations.table import operation


@operation(2)
def stateless(scope):
    """A draw from a seed, of some value's shape."""
    x = scope.value("float")
    seed = f"seed=[{scope.integer(0, 3)}, {scope.integer(0, 3)}]"
    dtype = f"dtype={x.type}"
    sizes = scope.sizes(x)
    name = scope.choice(["uniform", "normal", "truncated_normal"])
    drawn = scope.let(f"tf.random.stateless_{name}({sizes}, {seed}, {dtype})")
    if scope.flag():
        scope.let(f"{x} + {drawn}")


@operation()
def integers(scope):
    """Integers from a range, or of all bits."""
    x = scope.value()
    dtype = scope.choice(["tf.int32", "tf.int64"])
    most = scope.choice(["5", "None"])
    least = "0" if most == "5" else "None"
    scope.let(
        f"tf.random.stateless_uniform({scope.sizes(x)}, seed=[1, 2], "
        f"minval={least}, maxval={most}, dtype={dtype})"
    )


@operation(2)
def dropout(scope):
    """Some elements become zero, the same ones everywhere."""
    x = scope.value("float")
    kept = (
        f"tf.random.stateless_uniform({scope.sizes(x)}, "
        f"seed=[{scope.integer(0, 3)}, 7], dtype={x.type}) >= 0.5"
    )
    scope.let(f"tf.where({kept}, {x} * 2, 0)", x)


@operation()
def shuffle(scope):
    """Rows in an order that is drawn."""
    x = scope.value(least=1)
    order = (
        "tf.argsort(tf.random.stateless_uniform("
        f"[tf.shape({x})[0]], seed=[3, 4]))"
    )
    scope.let(f"tf.gather({x}, {order})", x)


@operation(2)
def seeded_by_variable(scope):
    """As Keras draws: the seed is a variable, which is counted up."""
    if scope.in_loop:
        return
    names = [
        name
        for name, variable in scope.variables.items()
        if variable.dtype.is_integer
        and variable.shape == [2]
        and name not in scope.is_sum
    ]
    seed = scope.choice(names)
    x = scope.value("float")
    scope.let(
        f"tf.random.stateless_uniform({scope.sizes(x)}, "
        f"seed=tf.identity({seed}))"
    )
    scope.add([f"{seed}.assign_add([0, 1])"])
