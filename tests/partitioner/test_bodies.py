"""Loops, of one replica's own rows and of all replicas."""

import subprocess
import sys

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.partitioner.rules.planned import replicas, same

PROGRAM = """
from tests import conftest  # Eight logical CPU devices.
import tensorflow as tf
from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.partitioner.checking import _strategy

strategy = _strategy(3)
with strategy.scope():
    weight = tf.Variable(1)


def inner_loop(x):
    # Each replica's own.
    def outer(i, state):
        def inner(j, state):
            tf.identity(weight)
            return j + 1, state

        tf.while_loop(lambda j, _: j < 4, inner, [0, x[:, 1]])
        return i + 1, x[:, 0] + tf.reduce_sum(tf.tanh(x))

    return tf.while_loop(lambda i, _: i < 3, outer, [0, x[:, 0]])[1]


def not_taken(x):
    def loop():
        # Each round the replicas ask each other.
        return tf.while_loop(
            lambda n, _: n < tf.reduce_sum(x),
            lambda n, x: (n + tf.cast(weight, tf.float32), x * 2.0),
            [0.0, x],
        )[1]

    return tf.cond(tf.reduce_sum(x) < 0.0, loop, lambda: x)


def never_begins(x):
    return tf.while_loop(
        lambda n, _: n < tf.reduce_sum(x) - 1e9,
        lambda n, x: (n + tf.cast(weight, tf.float32), x * 2.0),
        [0.0, x],
    )[1]


x = tf.random.uniform([8, 3])
for step in inner_loop, not_taken, never_begins:
    partitioned = Partitioned(
        step, strategy.replicas, strategy.extended.one_device, "step"
    )
    program = partitioned.program((tf.TensorSpec([None, 3]),))
    written = program.written()
    for number in range(1000):
        found = program.trace.packed(written([x]))
    tf.debugging.assert_near(found, step(x))
print("done")
"""


@pytest.mark.slow
def test_loops_that_pass_variables_on_end():
    """They could deadlock (see `bodies._drop_unused`)."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "done\n", done.stderr[-2000:]


def test_diagonals_whose_sizes_the_gradient_of_a_loop_does_not_know():
    """TensorFlow can't import such a function from its graph."""

    def step(x):
        def body(i, total):
            whole = tf.reduce_sum(tf.linalg.diag_part(tf.tanh(total)))
            return i + 1, total + whole

        with tf.GradientTape() as tape:
            tape.watch(x)
            _, total = tf.while_loop(lambda i, _: i < 2, body, [0, x])
            loss = tf.reduce_mean(total**2)
        return (tape.gradient(loss, x),)

    same(step, [3, 1, 1, 1], num_replicas=2)


def in_a_loop(z, draw, rounds=12):
    """Adds draws to `z` in a slow loop."""

    def body(i, z):
        wide = tf.repeat(z, 64, axis=1)
        for _ in range(4):
            wide = tf.tanh(wide @ tf.fill([192, 192], 0.01))
        return i + 1, wide[:, :3] + draw(z)

    return tf.while_loop(lambda i, _: i < rounds, body, [0, z])[1]


def normal(z):
    return tf.random.normal(tf.shape(z), seed=1)


def while_loop(x):
    return in_a_loop(x, normal)


def loop_in_a_loop(x):
    return in_a_loop(x, lambda z: in_a_loop(z, normal, 4), 4)


def branch_in_a_loop(x):
    def branches(z):
        return tf.cond(tf.shape(z)[0] > 3, lambda: normal(z), lambda: z)

    return in_a_loop(x, branches)


def scan(x):
    return tf.scan(
        lambda z, _: in_a_loop(z, normal, 1), tf.range(12), tf.identity(x)
    )


def loop_with_a_gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(in_a_loop(x, lambda z: z * normal(z)) ** 2)
    return tape.gradient(loss, x)


DRAWING_LOOPS = [
    while_loop,
    loop_in_a_loop,
    branch_in_a_loop,
    scan,
    loop_with_a_gradient,
]


ROWS = (tf.TensorSpec([None, 3]),)


def written(step):
    """Returns a step's program and its function on replicas."""
    program = Partitioned(step, replicas(2)).program(ROWS)
    return program, program.written()


@pytest.mark.parametrize("step", DRAWING_LOOPS)
def test_draws_in_loops_come_in_the_order_of_iterations(step):
    """On one device a draw waits for the tensor whose shape it takes."""
    rows = tf.random.stateless_normal([7, 3], seed=(1, 2))
    one = tf.function(step, ROWS, autograph=False)
    program, function = written(step)
    for _ in range(4):
        found = program.trace.packed(function([rows]))
        tf.debugging.assert_near(found, one(rows), 1e-3, 1e-3)


def parallel_iterations(step):
    """Returns a step's `parallel_iterations` by loop, the outermost last."""
    _, function = written(step)
    return [
        node.attr["parallel_iterations"].i
        for definition in function.library
        for node in definition.node_def
        if node.op == "While"
    ]


def test_iterations_that_draw_nothing_run_in_parallel():
    def draws_outside(x):
        drawn = normal(x)
        return in_a_loop(x, lambda z: in_a_loop(z, lambda _: drawn))

    def draws_in_the_outer_one(x):
        return in_a_loop(x, lambda z: in_a_loop(z, tf.sin) + normal(z))

    *inner, outer = parallel_iterations(draws_in_the_outer_one)
    assert (set(inner), outer) == ({10}, 1)
    assert set(parallel_iterations(draws_outside)) == {10}
    assert set(parallel_iterations(loop_in_a_loop)) == {1}


def test_a_loop_changes_a_variable_without_copies_once():
    """Such a variable was made outside of a strategy's scope."""

    def step():
        generator = tf.random.Generator.from_seed(3)
        return lambda x: in_a_loop(x, lambda z: generator.normal(tf.shape(z)))

    rows = tf.random.stateless_normal([7, 3], seed=(1, 2))
    one = tf.function(step(), ROWS, autograph=False)
    program, function = written(step())
    for _ in range(2):
        found = program.trace.packed(function([rows]))
        tf.debugging.assert_near(found, one(rows), 1e-3, 1e-3)
