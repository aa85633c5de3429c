"""What is known of shapes while a function is traced."""

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.rules.integers import always_holds
from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.partitioner.rules.planned import ROWS, replicas, same


@pytest.mark.parametrize(
    "function, value",
    [
        (lambda x: tf.shape(x), "(rows of input 0, 3, 4)"),
        (lambda x: tf.size(x), "12*rows of input 0"),
        (lambda x: tf.rank(x), "3"),
        (lambda x: tf.shape(x)[0] * 2 + 1, "1 + 2*rows of input 0"),
        (lambda x: tf.shape(x)[-2:], "(3, 4)"),
        (lambda x: tf.size(x) // 4, "3*rows of input 0"),
        (lambda x: tf.shape(x)[0] // 2, "None"),
        (lambda x: tf.reduce_prod(tf.shape(x)[1:]), "12"),
        (lambda x: tf.stack([tf.shape(x)[0], 12]), "(rows of input 0, 12)"),
        (lambda x: tf.range(2, 8, 3), "(2, 5)"),
        (lambda x: tf.shape(tf.reshape(x, [-1, 6])), "(2*rows of input 0, 6)"),
        (lambda x: tf.shape(tf.concat([x, x], 0)), "(2*rows of input 0, 3, 4)"),
        (lambda x: tf.shape(tf.transpose(x))[2], "rows of input 0"),
    ],
)
def test_values(function, value):
    specification = (tf.TensorSpec([ROWS, 3, 4]),)
    program = Partitioned(function, replicas(2)).program(specification)
    (tensor,) = program.trace.graph.outputs
    assert str(tensor.value) == value


@pytest.mark.parametrize(
    "condition, expected",
    [
        (lambda x: tf.size(x) == 12 * tf.shape(x)[0], True),
        (lambda x: tf.shape(x)[1:] >= tf.constant([3, 4]), True),
        (lambda x: tf.logical_and(tf.rank(x) == 3, True), True),
        (lambda x: tf.shape(x)[0] == 8, False),
        (lambda x: tf.shape(x) == tf.constant([8, 3, 4]), False),
        (lambda x: tf.shape(x)[0] // 2 == tf.shape(x)[0] // 2, False),
        (lambda x: x >= x, False),  # Not where one is NaN.
    ],
)
def test_conditions_that_always_hold(condition, expected):
    specification = (tf.TensorSpec([ROWS, 3, 4]),)
    traced = Partitioned(lambda x: tf.reduce_all(condition(x)), replicas(2))
    (tensor,) = traced.program(specification).trace.graph.outputs
    assert always_holds(tensor) is expected


@pytest.mark.parametrize(
    "number",
    [
        lambda rows: tf.constant(1103515245) * tf.constant(12345) % 7,
        lambda rows: tf.constant(200, tf.uint8) + tf.constant(100, tf.uint8),
        lambda rows: rows * 1103515245 * 7 + 12345,
        lambda rows: tf.cast(rows + 255, tf.uint8),
    ],
)
def test_integers_that_are_too_large_wrap_around(number):
    same(lambda x: (x + tf.cast(number(tf.shape(x)[0]), tf.float32),), [7, 2])


def test_an_empty_vector_of_sizes_is_a_vector():
    """Which axes a product with a constant broadcasts: none."""

    def step(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                weights = tf.ones([1, 3])
                made = tf.linalg.cross(tf.sin(x @ weights), x @ weights)
                loss = tf.reduce_mean(made**2)
            gradient = inner.gradient(loss, x)
            total = tf.reduce_mean(gradient**2) + loss
        return (outer.gradient(total, x),)

    same(step, [6, 2, 1])


def test_what_hashes_a_number_of_rows_wraps_around():
    def step(x):
        number = tf.shape(x)[0] * 1103515245 + 12345
        return x * tf.cast(number % 3, tf.float32)

    same(step, [3, 2], num_replicas=2)


def test_entries_that_are_taken_apart_are_known():
    def step(x):
        rows, width, depth = tf.unstack(tf.shape(x))
        parts = tf.split(tf.shape(x), 3)
        x = tf.reshape(x, [rows, width * depth])
        return tf.reshape(x, tf.concat(parts, 0))

    specification = (tf.TensorSpec([ROWS, 3, 4]),)
    program = Partitioned(step, replicas(2)).program(specification)
    same(lambda x: x * tf.cast(tf.unstack(tf.shape(x))[0], tf.float32), [5])
    assert all(plan.rule for plan in program.plans[0].nodes.values())
    same(step, [5, 3, 4], num_replicas=3)
