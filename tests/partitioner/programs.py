"""The Hypothesis strategy that draws programs."""

import itertools

import tensorflow as tf
from hypothesis import strategies

from tests.partitioner import operations  # noqa: F401
from tests.partitioner.operations.random import DRAWS
from tests.partitioner.operations.table import draw_lines
from tests.partitioner.program import Input, Program, Setting, Variable
from tests.partitioner.scope import Scope, Value

_MOST_LINES = 14
_NUMBERS_OF_REPLICAS = (2, 3, 5, 8)
_FEW_REPLICAS = (2, 1, 3)
_NUMBERS_OF_MICRO_BATCHES = (1, 1, 2, 3)
_NUMBERS_OF_ROWS = (3, 1, 2, 5, 8, 6, 11)
_TYPES = ("float32",) * 5 + ("int32", "float64", "int64", "bool", "float16")


@strategies.composite
def programs(draw):
    """Draws a `program.Program`."""
    # Lines run while they are drawn, and values that are too large are skipped:
    # the same choices must meet the same random numbers.
    tf.random.set_seed(0)
    names = itertools.count()
    scope = Scope(draw, names)
    rows = scope.choice(_NUMBERS_OF_ROWS)
    inputs, variables = {}, {}
    inner = [scope.integer(1, 4), scope.integer(2, 3)]
    for _ in range(scope.integer(1, 3)):
        _draw_input(scope, inputs, rows, inner, is_batch=True)
    if scope.chance(3):
        _draw_input(scope, inputs, 0, inner, is_batch=False)
    for _ in range(max(0, scope.integer(-2, 3))):
        _draw_variable(scope, variables, inner)
    draw_lines(scope, _MOST_LINES)
    made = [v for v in scope.values if v.name not in inputs]
    # Nothing else is computed; but who is returned must be whole.
    all_ = scope.flag()
    outputs = [v.name for v in made if v is made[-1] or all_ or scope.chance(3)]
    is_static = scope.flag()
    micro_batches = scope.choice(_NUMBERS_OF_MICRO_BATCHES)
    setting = Setting(
        scope.choice(
            _NUMBERS_OF_REPLICAS if micro_batches == 1 else _FEW_REPLICAS
        ),
        is_static,
        False if is_static else scope.flag(),
        draws=any(call in line for call in DRAWS for line in scope.lines),
        shard=bool(variables) and scope.flag(),
        micro_batches=micro_batches,
    )
    types = [given.dtype for given in inputs.values()]
    is_half = "float16" in " ".join([*types, *scope.lines])
    return Program(
        inputs,
        variables,
        tuple(scope.lines),
        tuple(outputs or inputs),
        setting,
        "float16" if is_half else "float32",
    )


def _draw_input(scope, inputs, rows, inner, is_batch):
    axes = [scope.choice(inner) for _ in range(scope.integer(0, 3))]
    shape = (rows, *axes) if is_batch else tuple(axes)
    dtype = scope.choice(_TYPES)
    kind = scope.choice(["whole", "normal"])
    given = Input(kind, scope.integer(0, 5), shape, dtype, is_batch)
    name = f"x{len(inputs)}"
    inputs[name] = given
    is_exact = kind == "whole" or not dtype.startswith("float")
    scope.values.append(Value(name, given.tensor(), is_exact))


def _draw_variable(scope, variables, inner):
    axes = [scope.choice([*inner, 2]) for _ in range(scope.integer(0, 2))]
    dtype = scope.choice(["float32", "float32", "int32", "int64", "float64"])
    # TensorFlow assigns the initial value to every partial sum.
    is_sum = scope.chance(4)
    kind, name = ("zero", "m") if is_sum else ("normal", "w")
    initial = Input(kind, scope.integer(0, 5), tuple(axes), dtype, False)
    name = f"{name}{len(variables)}"
    made = Variable(initial, "SUM", "ON_READ") if is_sum else Variable(initial)
    if is_sum:
        scope.is_sum.add(name)
    variables[name] = made
    scope.variables[name] = made.make()
