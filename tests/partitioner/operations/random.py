"""Draws."""

from tests.partitioner.operations.table import operation
from tests.partitioner.scope import Skip

DRAWS = {
    "tf.random.gamma(": "{sizes}, 2.0, dtype={dtype}, seed={seed}",
    "tf.random.normal(": "{sizes}, dtype={dtype}, seed={seed}",
    "tf.random.poisson(": "{sizes}, 2.0, {dtype}, {seed}",
    "tf.random.truncated_normal(": "{sizes}, dtype={dtype}, seed={seed}",
    "tf.random.uniform(": "{sizes}, dtype={dtype}, seed={seed}",
}
"""Calls that draw from a state of their own, and their arguments."""


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


@operation()
def stateful(scope):
    """A draw from a state of its own, of some value's shape."""
    if scope.in_loop:
        raise Skip  # See `sampler`.
    x = scope.value("wide")
    drawn = scope.let(_draw(scope, x, scope.sizes(x)))
    if scope.flag():
        scope.let(f"{x} + {drawn}")


@operation(2)
def sampler(scope):
    """A loop that takes its time, and draws of the shape of what it carries.

    On one device each draw waits for what the iteration before returned, since
    TensorFlow does not know that the shape stays. Draws in other loops are in
    no order there. Second derivatives of loops in loops take minutes to trace.
    """
    if scope.in_loop or scope.depth > 1:
        raise Skip
    x = scope.value("wide", least=1, most=3)
    step, loop = scope.name("f"), scope.name("f")
    draw, other = (_draw(scope, x, "tf.shape(z)") for _ in range(2))
    drawn = scope.choice(
        [
            draw,
            f"tf.cond(i % 2 == 0, lambda: {draw}, lambda: {other})",
            f"tf.cond(tf.shape(z)[0] > 2, lambda: {draw}, lambda: {other})",
            f"{loop}(lambda j, z: (j + 1, tf.sin(z) + {draw}), z, 3)",
        ]
    )
    y, factor = f"z[..., tf.newaxis] * tf.ones([32], {x.type})", "[..., 0]"
    if scope.flag():  # All replicas need each other's rows.
        y, factor = "tf.fill([32, 32], tf.sin(tf.reduce_sum(z)))", "[0, 0]"
    shapes = f"[tf.TensorShape([]), tf.TensorShape({[None] * x.rank})]"
    made = scope.name()
    scope.add(
        [
            f"def {loop}(body, z, count):",
            "    return tf.while_loop(lambda i, _: i < count, body, [0, z], "
            f"{shapes})[1]",
            f"def {step}(i, z):",
            f"    y = {y}",
            f"    for _ in range({scope.integer(1, 6)}):",
            # oneDNN writes out of bounds for `y @ ...` of four dimensions.
            f"        y = tf.tanh(tf.tensordot(y, tf.fill([32, 32], "
            f"tf.constant(0.1, {x.type})), 1))",
            f"    return i + 1, tf.sin(z) + {drawn} * y{factor}",
            f"{made} = {loop}({step}, {x}, {scope.integer(2, 12)})",
        ],
        [made],
    )


def _draw(scope, x, sizes):
    call = scope.choice(sorted(DRAWS))
    arguments = DRAWS[call].format(
        sizes=sizes, dtype=x.type, seed=scope.integer(0, 3)
    )
    return f"{call}{arguments})"
