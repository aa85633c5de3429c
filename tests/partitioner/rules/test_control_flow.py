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
