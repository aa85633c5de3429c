"""Rules for loops and branches."""

import tensorflow as tf

from tests.partitioner.rules.planned import ROWS, kinds_of, same


def test_rows_stay_apart_in_a_loop():
    def loop(x):
        return tf.while_loop(
            lambda n, x: n < 3, lambda n, x: (n + 1, x * 2.0), [0, x]
        )[1]

    assert kinds_of(loop, [ROWS, 4]) == ["rows on 0"]


def test_what_becomes_rows_in_a_loop_is_rows_from_the_first_pass_on():
    def loop(x):
        zeros = tf.zeros_like(x)
        return tf.while_loop(
            lambda n, y: n < 3, lambda n, y: (n + 1, y + x), [0, zeros]
        )[1]

    assert kinds_of(loop, [ROWS, 4]) == ["rows on 0"]


def test_branches_give_what_both_can():
    def branch(x):
        wide = tf.tanh(x)
        return tf.cond(
            tf.size(x) > 4, lambda: wide, lambda: tf.zeros(tf.shape(x))
        )

    assert kinds_of(branch, [ROWS, 4]) == ["rows on 0"]


def test_a_sum_inside_a_loop_is_of_all_replicas():
    def loop(x):
        return tf.while_loop(
            lambda n, y: n < 2,
            lambda n, y: (n + 1, y + tf.reduce_sum(x * y)),
            [0, x],
        )

    same(loop, [3, 2])


def test_a_part_that_becomes_whole_in_a_loop_counts_once():
    def loop(x):
        ones = tf.ones_like(x)
        return tf.while_loop(
            lambda n, y: n < 1,
            lambda n, y: (n + 1, tf.reduce_mean(tf.tanh(ones))),
            [0, tf.nn.l2_loss(x)],
        )

    same(loop, [3, 2], static=True)
    same(loop, [3, 2])


def test_an_extreme_that_becomes_whole_in_a_loop_stays_what_it_is():
    def loop(x):
        extremes = tf.reduce_max(x), tf.reduce_min(x)
        return tf.while_loop(
            lambda n, *_: n < 2,
            lambda n, most, least: (
                n + 1,
                most - tf.reduce_sum(x**2),
                least + tf.reduce_sum(x**2),
            ),
            [0, *extremes],
        )[1:]

    same(loop, [7, 2], num_replicas=3)


def test_branches_with_other_numbers_of_rows_meet_whole():
    def step(x):
        few = tf.cond(tf.reduce_sum(x) > -1e9, lambda: x[:1] * 2, lambda: x * 2)
        return few, tf.reduce_mean(few, 0)

    same(step, [7, 2], num_replicas=3)


def test_loops_that_change_the_number_of_rows_are_whole():
    def step(x):
        _, longer = tf.while_loop(
            lambda n, y: n < 2,
            lambda n, y: (n + 1, tf.concat([y, y[:1]], 0)),
            [0, x],
            [tf.TensorShape([]), tf.TensorShape([None, 2])],
        )
        return longer, tf.reduce_mean(longer, 0)

    same(step, [7, 2], num_replicas=3)


def test_lists_of_different_numbers_of_rows_are_whole():
    def step(x):
        made = tf.TensorArray(
            tf.float32, 2, infer_shape=False, element_shape=[None, 2]
        )
        made = made.write(0, x).write(1, x[:1])
        return made.read(0), tf.reduce_mean(made.read(1), 0)

    same(step, [7, 2], num_replicas=3)


def test_what_is_said_in_a_branch_that_is_not_taken_counts_for_nothing():
    def step(x, y):
        return (
            tf.cond(
                tf.shape(x)[0] == tf.shape(y)[0],
                lambda: tf.reduce_sum(x * y),
                lambda: tf.reduce_sum(x) - tf.reduce_sum(y),
            ),
        )

    same(step, [5, 2], [3, 2], num_replicas=2)


def test_the_gradient_of_branches_of_different_shapes():
    """TensorFlow says there that all have the shape of the first."""

    @tf.function
    def traced(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            either = tf.cond(
                tf.reduce_sum(x) > 1e9,
                lambda: x * x,
                lambda: x @ tf.transpose(x),
            )
            loss = tf.reduce_mean(tf.sin(either))
        return either, loss, tape.gradient(loss, x)

    def step(x):
        either, *results = traced(x)
        return tf.cos(either) + 1.0, *results

    same(step, [5, 3], num_replicas=2)
