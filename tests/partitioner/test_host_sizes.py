"""Sizes that are computed when a function runs."""

import tensorflow as tf

from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.partitioner.rules.planned import replicas


def run(function, rows, num_replicas=3):
    """Runs a function of `[rows, 2]` zeros on replicas; returns a list."""
    specification = tf.TensorSpec([None, 2], tf.float32)
    program = Partitioned(function, replicas(num_replicas)).program(
        (specification,)
    )
    (value,) = program.written()([tf.zeros([rows, 2])])
    return value.numpy().tolist()


def test_sizes_are_those_of_the_whole_batch():
    assert run(lambda x: tf.shape(x), 7) == [7, 2]
    assert run(lambda x: tf.size(x) * 2 + tf.shape(x)[0] + 1, 7) == 36


def test_a_program_runs_for_any_number_of_rows():
    specification = tf.TensorSpec([None, 2], tf.float32)
    program = Partitioned(lambda x: tf.shape(x)[0], replicas(3)).program(
        (specification,)
    )
    written = program.written()
    for rows in (0, 1, 3, 8):
        assert written([tf.zeros([rows, 2])])[0].numpy() == rows


def test_rows_in_blocks():
    def count(x):
        twice, flat = tf.concat([x, x], 0), tf.reshape(x, [-1])
        return tf.shape(twice)[0] + tf.shape(flat)[0]

    assert run(count, 5) == 20


def test_bodies_of_loops_know_sizes_from_around_them():
    def count(x):
        return tf.while_loop(
            lambda n, total: n < 3,
            lambda n, total: (n + 1, total + tf.shape(x)[0]),
            [0, 0],
        )[1]

    assert run(count, 5) == 15


def test_shares_have_as_many_rows_as_one_device_deals_out():
    """Shares of seven rows are 3, 2 and 2; each row returns its global index."""

    def number_rows(x):
        return x[:, 0] + tf.range(tf.cast(tf.shape(x)[0], tf.float32))

    assert run(number_rows, 7) == [0, 1, 2, 3, 4, 5, 6]
