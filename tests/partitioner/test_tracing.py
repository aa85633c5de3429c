"""The trace of a step that makes variables on its way."""

import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu


def momentum_step(first_value):
    made = []

    def step(rows):
        gradient = tf.reduce_mean(rows, 0)
        if not made:
            made.append(tf.Variable(first_value(gradient), trainable=False))
        made[0].assign(0.9 * made[0] + gradient)
        return made[0].read_value()

    return step


ROWS = tf.random.stateless_normal([7, 3], seed=(1, 2))


def test_a_new_variables_value_may_be_a_tensor_of_the_trace():
    step = momentum_step(lambda like: tf.ones([3]) + tf.fill([3], 0.5))
    partitioned = kerasmgpu.partition(step, devices=["CPU:0", "CPU:1"])
    mean = tf.reduce_mean(ROWS, 0)
    np.testing.assert_allclose(partitioned(ROWS), 0.9 * 1.5 + mean, rtol=1e-5)
    second = 0.9 * (0.9 * 1.5 + mean) + mean
    np.testing.assert_allclose(partitioned(ROWS), second, rtol=1e-5)


def test_a_new_variables_value_of_the_steps_data_is_refused():
    step = momentum_step(lambda like: 2 * like)
    partitioned = kerasmgpu.partition(step, devices=["CPU:0", "CPU:1"])
    # AutoGraph makes errors of code that it converted its own.
    with pytest.raises(Exception, match="initial value of the step's data"):
        partitioned(ROWS)
