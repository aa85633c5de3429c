"""Loops, of one replica's own rows and of all replicas."""

import subprocess
import sys

import tensorflow as tf

from tests.partitioner.rules.planned import same

PROGRAM = """
from tests import conftest  # Eight logical CPU devices.
import tensorflow as tf
from kerasmgpu.partitioner.function import Partitioned
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


def test_loops_that_pass_variables_on_end():
    """Some runs, or all, would wait for ever (see `bodies._drop_unused`)."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "done\n", done.stderr[-2000:]


def test_diagonals_whose_sizes_the_gradient_of_a_loop_does_not_know():
    """TensorFlow can't read such a function again."""

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
