"""Branches, loops, lists, functions and gradients."""

import tensorflow as tf

from tests.partitioner.operations.table import draw_lines, operation
from tests.partitioner.scope import Skip

_DEEPEST = 2
"""Functions in each other."""


@operation(3)
def branches(scope):
    """Functions of the same values, one of which is called."""
    arguments = _arguments(scope)
    like = arguments[0]
    count = scope.integer(2, 3)
    names = []
    exact = []
    for _ in range(count):
        name, results = scope.function(
            arguments, lambda inner, given: [_result(inner, given[0], like)]
        )
        names.append(f"lambda: {name}({_listed(arguments)})")
        exact += results
    chosen = scope.value("index", most=1, where=lambda v: 0 not in v.shape)
    number = f"tf.cast(tf.reduce_sum({chosen}), tf.int32)"
    if count == 2:
        text = f"tf.cond({number} % 2 == 0, {', '.join(names)})"
    else:
        text = f"tf.switch_case({number} % 3, [{', '.join(names)}])"
    scope.unpack(text, 1, *exact)


@operation(3)
def while_loop(scope):
    """Values that change from one pass to the next."""
    arguments = _arguments(scope)
    passes = str(scope.integer(0, 3))
    if scope.chance(3):
        chosen = scope.value("index", most=2)
        passes = f"tf.cast(tf.reduce_sum({chosen}), tf.int32) % 3"
    counter = scope.let("tf.constant(0)")

    def body(inner, given):
        return [
            f"{counter} + 1",
            *(_result(inner, value, value) for value in given),
        ]

    name, _ = scope.function(arguments, body, in_loop=True, extra=[counter])
    scope.unpack(
        f"tf.while_loop(lambda i, *_: i < {passes}, {name}, "
        f"[{counter}, {_listed(arguments)}])",
        len(arguments) + 1,
    )


@operation(4)
def other_sizes(scope):
    """Branches and loops that give another number of rows than they get."""
    x = scope.value("number", least=1, where=lambda v: v.shape[0] > 0)
    number = f"tf.shape({x})[0] // {scope.integer(1, 3)}"
    changes = [
        "x[:1]",
        "x[1:]",
        "tf.concat([x, x[:1]], 0)",
        "x[: (tf.shape(x)[0] + 1) // 2]",
        "tf.boolean_mask(x, tf.range(tf.shape(x)[0]) % 2 == 0)",
    ]
    if x.rank == 1:
        changes.append("tf.sort(x)[:2]")
    if scope.flag():
        one, two = scope.choice(["x * 1", *changes]), scope.choice(changes)
        scope.let(
            f"tf.cond({number} % 2 == 0, lambda x={x}: {one}, "
            f"lambda x={x}: {two})",
            x,
        )
        return
    rows = f"tf.TensorShape({[None] * x.rank})"
    scope.let(
        f"tf.while_loop(lambda i, _: i < {scope.integer(0, 3)}, "
        f"lambda i, x: (i + 1, {scope.choice(changes)}), "
        f"[tf.constant(0), {x}], [tf.TensorShape([]), {rows}])[1]",
        x,
    )


@operation(2)
def over_time(scope):
    """A loop over one axis that writes what it makes into a list."""
    x = scope.value(least=2)
    first = scope.axis(x) % x.rank
    order = [first, *(n for n in range(x.rank) if n != first)]
    turned = scope.let(f"tf.transpose({x}, {order})", x)
    steps = turned.shape[0]
    if not 0 < steps <= 6:
        raise Skip
    state = scope.let(f"{turned}[0]", turned)
    item = scope.let(f"{turned}[{steps - 1}]", turned)

    def cell(inner, given):
        return [_result(inner, given[1], state)]

    name, _ = scope.function([state, item], cell, in_loop=True)
    loop = scope.name("f")
    dtype = x.type
    line = "\n".join(
        [
            f"def {loop}(i, state, made):",
            f"    state = {name}(state, {turned}[i])[0]",
            "    return i + 1, state, made.write(i, state)",
        ]
    )
    last, all_ = scope.name(), scope.name()
    run = [
        *line.splitlines(),
        f"_, {last}, {all_} = tf.while_loop(lambda i, *_: i < {steps}, {loop}, "
        f"[0, {state}, tf.TensorArray({dtype}, {steps})])",
        f"{all_} = {all_}.stack()",
    ]
    scope.add(run, [last, all_])


@operation()
def mapped(scope):
    """Each element of the first axis by itself, or in turn."""
    x = scope.value("number", least=1, where=lambda v: 0 < v.shape[0] <= 8)
    item = scope.let(f"{x}[0]", x)
    name, _ = scope.function(
        [item], lambda inner, given: [_result(inner, given[0], item)], True
    )
    text = scope.choice(
        [
            f"tf.map_fn(lambda x: {name}(x)[0], {x})",
            f"tf.scan(lambda a, x: a + {name}(x)[0], {x})",
            f"tf.foldl(lambda a, x: a + {name}(x)[0], {x})",
            "tf.vectorized_map(tf.autograph.experimental.do_not_convert("
            f"lambda x: {name}(x)[0]), {x})",
        ]
    )
    scope.let(text)


@operation()
def called(scope):
    """A function of its own."""
    arguments = _arguments(scope)
    name, results = scope.function(
        arguments, lambda inner, given: [_result(inner, given[0], arguments[0])]
    )
    called = f"tf.function({name}, autograph=False)({_listed(arguments)})"
    scope.unpack(called, 1, *results)


@operation(5)
def gradient(scope):
    """Of a sum, with respect to values and variables."""
    if scope.depth >= _DEEPEST:
        raise Skip
    x = scope.value("wide")
    arguments = [x]
    if scope.flag():
        y = scope.value("wide")
        if y is not x:
            arguments.append(y)

    def loss(inner, given):
        draw_lines(inner, 5)
        # What depends on the arguments rather than these themselves.
        made = [v for v in inner.values if v.dtype.is_floating]
        made = [v for v in made if v not in given][-3:] or given
        terms = [f"tf.reduce_mean(tf.cast({v}, tf.float32) ** 2)" for v in made]
        return [inner.let(" + ".join(terms))]

    name, _ = scope.function(arguments, loss)
    variables = [
        variable
        for variable, held in scope.variables.items()
        if held.dtype in (tf.float32, tf.float64)
        and variable not in scope.is_sum
    ]
    if scope.flag():
        variables = []
    tape, made = scope.name("tape"), scope.name()
    names = [scope.name() for _ in [*arguments, *variables]]
    sources = _listed([*arguments, *variables])
    scope.add(
        [
            f"with tf.GradientTape() as {tape}:",
            f"    {tape}.watch([{_listed(arguments)}])",
            f"    {made}, = {name}({_listed(arguments)})",
            f"{', '.join(names)}, = {tape}.gradient({made}, [{sources}], "
            "unconnected_gradients='zero')",
        ],
        [made, *names],
    )


def _arguments(scope):
    """What a function is called with; one or two values."""
    if scope.depth >= _DEEPEST:
        raise Skip
    first = scope.value()
    arguments = [first]
    if scope.flag():
        second = scope.value()
        if second is not first:
            arguments.append(second)
    return arguments


def _result(inner, given, like):
    """A value of the shape and type of another one, by some lines."""
    draw_lines(inner, 4)
    made = [v for v in inner.values if v.dtype == like.dtype and v is not given]
    fit = [value for value in made if value.shape == like.shape]
    if fit and not inner.chance(3):
        return fit[-1]
    if like.dtype == tf.bool:
        return inner.let(f"~{given}") if given.shape == like.shape else like
    one = made[-1] if made else given
    return inner.let(f"{like} + tf.reduce_sum({one})", like, one)


def _listed(values):
    return ", ".join(map(str, values))
