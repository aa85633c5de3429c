"""Rules for operations on each element."""

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.partitioner.rules.planned import (
    ROWS,
    Planned,
    kinds_of,
    replicas,
    same,
)


def test_rows_meet_what_is_broadcast_to_them():
    bias = tf.ones([4])
    assert kinds_of(lambda x: tf.tanh(x + bias), [ROWS, 4]) == ["rows on 0"]


def test_axes_count_from_the_last_one():
    kinds = kinds_of(lambda x, y: x[None] * y, [ROWS, 4], [ROWS, 4])
    assert kinds == ["rows on 1"]


def test_a_part_times_a_number_is_a_part():
    kinds = kinds_of(lambda x: tf.reduce_sum(x, 0) * 3.0, [ROWS, 4])
    assert kinds == ["partial sum"]


def test_a_function_that_is_not_linear_needs_the_sum():
    kinds = kinds_of(lambda x: tf.exp(tf.reduce_sum(x)), [ROWS])
    assert kinds == ["replicated"]


def test_a_part_plus_a_whole_is_a_part():
    """The first replica adds the whole."""
    assert kinds_of(lambda x: tf.reduce_sum(x) + 1.0, [ROWS]) == ["partial sum"]
    same(lambda x: (tf.reduce_sum(x) + 1.0,), [5], num_replicas=3)


def test_a_part_that_is_broadcast_is_summed_before():
    kinds = kinds_of(lambda x: tf.reduce_sum(x) + tf.ones([3]), [ROWS])
    assert kinds == ["replicated"]


def test_a_vector_condition_chooses_rows():
    def select(condition, x):
        return tf.compat.v1.where(condition, x, -x)

    plan = Planned(select, [ROWS, "bool"], [ROWS, 4])
    assert plan.kinds == ["rows on 0"]
    assert plan.gathered == []


def test_a_bias_gradient_is_a_sum_over_replicas():
    bias = tf.ones([4])

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(bias)
            loss = tf.reduce_sum(tf.tanh(tf.nn.bias_add(x, bias)))
        return tape.gradient(loss, bias)

    assert kinds_of(gradient, [ROWS, 4]) == ["partial sum"]


def test_one_row_is_broadcast_to_all_rows():
    for rows in (1, 5):
        same(lambda x: (x + x[:1],), [rows, 3], num_replicas=3)


def test_what_is_broadcast_of_sizes_1_only_has_size_1():
    """TensorFlow doesn't know that the first axis has one element."""
    partitioned = Partitioned(
        lambda x: tf.reshape(x, [-1, tf.shape(x)[0]]) * 2.0, replicas(2)
    )
    program = partitioned.program((tf.TensorSpec([ROWS]),))
    (out,) = program.trace.graph.outputs
    assert out.shape[0] == 1


def test_a_sum_is_whole_before_it_is_divided_as_an_integer():
    def step(x):
        return (tf.raw_ops.Div(x=tf.reduce_sum(x, 0), y=7),)

    same(step, [7, 4, "int32"], num_replicas=3)


def test_a_sum_is_whole_before_it_is_multiplied_by_infinity():
    """A part of it may be 0, and 0 times infinity is no number."""

    def step(x):
        total = tf.reduce_sum(tf.nn.relu(x[:, 0] - x[:1, 0])) + x[-1, 0] ** 2
        return (tf.clip_by_value(total * float("inf"), 0.0, 1.0),)

    same(step, [5, 2], num_replicas=3)


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_sums_of_several_do_not_broadcast_one_row(rows):
    twice = tf.recompute_grad(lambda x: tf.tanh(x) * x)

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cond(
                tf.reduce_sum(x) > -1e9, lambda: twice(twice(x)), lambda: x
            )
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, x)

    same(step, [rows, 4], num_replicas=3, static=True)
    same(step, [rows, 4], num_replicas=3)


def test_rows_in_two_blocks_meet_what_data_decide_on():
    def step(x):
        both = tf.concat([x, 2 * x], 0)
        return tf.sin(both) + tf.boolean_mask(both, both[:, 0] > -1e9)

    same(step, [11, 2], num_replicas=3, static=True)
    same(step, [11, 2], num_replicas=3)


def test_words_are_replaced_by_each_replica():
    def replaced(words):
        return tf.strings.regex_replace(words, "[.,]", "")

    plan = Planned(replaced, [ROWS, 3, "string"])
    assert (plan.kinds, plan.gathered) == (["rows on 0"], [])
