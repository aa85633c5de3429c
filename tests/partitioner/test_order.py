"""Order of effects by data dependencies alone."""

import tensorflow as tf

from kerasmgpu.partitioner.runtime.function import Partitioned
from kerasmgpu.partitioner.runtime.tracing import Trace
from tests.partitioner.rules.planned import replicas

NUM_DRAWS = 6


def without_automatic_order(function):
    """Returns the function's graph without automatic control dependencies."""
    rows = tf.TensorSpec([None, 3])
    return tf.compat.v1.wrap_function(function, [rows])


def outputs(step, num_runs=3):
    """Returns a step's outputs of several runs, on one device and replicas."""
    rows = tf.random.stateless_normal([7, 3], seed=(1, 2))
    specification = (tf.TensorSpec([None, 3]),)
    one = tf.function(step(), specification, autograph=False)
    program = Partitioned(step(), replicas(2)).program(specification)
    written = program.written()
    return (
        [one(rows) for _ in range(num_runs)],
        [program.trace.packed(written([rows])) for _ in range(num_runs)],
    )


def test_draws_of_one_generator_that_wait_for_shapes_of_each_other():
    def step():
        generator = tf.random.Generator.from_seed(3)

        def draws(x):
            for _ in range(NUM_DRAWS):
                x = slow(x) + generator.normal(tf.shape(x))
            return x

        return without_automatic_order(draws)

    for expected, found in zip(*outputs(step)):
        tf.debugging.assert_near(found, expected, 1e-3, 1e-3)


def test_a_draw_of_which_only_the_shape_is_taken_counts():
    """Such a draw still advances the generator for later draws."""

    def step():
        generator = tf.random.Generator.from_seed(3)

        def draws(x):
            first = generator.normal(tf.shape(x))
            return generator.normal(tf.shape(first))

        return without_automatic_order(draws)

    for expected, found in zip(*outputs(step)):
        tf.debugging.assert_equal(found, expected)


def slow(x):
    """Returns rows of the same shape, slowly."""
    wide = tf.repeat(x, 64, axis=1)
    for _ in range(4):
        wide = tf.tanh(wide @ tf.fill([192, 192], 0.01))
    return wide[:, :3]


def test_loops_without_effects_wait_for_data_alone():
    """A loop's gradient does not wait for all outputs of the loop."""

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            _, y = tf.while_loop(
                lambda i, _: i < 3, lambda i, x: (i + 1, tf.sin(x)), [0, x]
            )
        return tape.gradient(y, x)

    graph = Trace(step, (tf.TensorSpec([None, 3]),), "step").graph
    loops = [node for node in graph.nodes if node.bodies]
    assert len(loops) == 2
    assert not any(node.controls for node in loops)
