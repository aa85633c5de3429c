"""Tracing of a step: creation of variables, pruning of branch arguments."""

import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.tracing import Trace
from tests.devices import device_names


def momentum_step(first_value):
    made = []

    def step(rows):
        gradient = tf.reduce_mean(rows, 0)
        if not made:
            made.append(tf.Variable(first_value(gradient), trainable=False))
        made[0].assign(0.9 * made[0] + gradient)
        return made[0].read_value()

    return step


REPLICAS = Replicas(
    Mesh.on(["/device:CPU:0", "/device:CPU:1"], "/device:CPU:0")
)
ROWS = tf.random.stateless_normal([7, 3], seed=(1, 2))


def test_a_new_variables_value_may_be_a_tensor_of_the_trace():
    step = momentum_step(lambda like: tf.ones([3]) + tf.fill([3], 0.5))
    partitioned = kerasmgpu.partition(step, devices=device_names(2))
    mean = tf.reduce_mean(ROWS, 0)
    np.testing.assert_allclose(partitioned(ROWS), 0.9 * 1.5 + mean, rtol=1e-5)
    second = 0.9 * (0.9 * 1.5 + mean) + mean
    np.testing.assert_allclose(partitioned(ROWS), second, rtol=1e-5)


def test_a_new_variables_value_of_the_steps_data_is_refused():
    step = momentum_step(lambda like: 2 * like)
    partitioned = kerasmgpu.partition(step, devices=device_names(2))
    # AutoGraph wraps errors of converted code in other classes.
    with pytest.raises(Exception, match="must not depend on the step's data"):
        partitioned(ROWS)


def test_what_happens_where_the_arguments_never_come():
    count, decayed, seen = (tf.Variable(value) for value in (0.0, 8.0, 0.0))

    def step(rows):
        decayed.assign(decayed * 0.5)
        seen.assign_add(tf.reduce_sum(rows))
        decayed.assign_sub(seen)
        return count.assign_add(1.0) * tf.reduce_sum(rows)

    trace = Trace(step, (tf.TensorSpec([None, 3]),), "step")
    Program(trace, REPLICAS).without_arguments([])
    assert [count.numpy(), decayed.numpy(), seen.numpy()] == [1.0, 4.0, 0.0]


def test_a_branch_does_without_arguments_what_needs_none():
    """An optimizer that accumulates gradients has such a branch."""
    count, total = tf.Variable(1), tf.Variable(5.0)

    def step(rows):
        gradient = tf.reduce_sum(rows)

        def update():
            total.assign_add(gradient)
            total.assign(0.0)
            count.assign(0)

        def accumulate():
            total.assign_add(gradient)

        tf.cond(count % 2 == 1, update, accumulate)

    trace = Trace(step, (tf.TensorSpec([None, 3]),), "step")
    Program(trace, REPLICAS).without_arguments([])
    assert (count.numpy(), total.numpy()) == (0, 5.0)


def test_nothing_happens_where_all_needs_the_arguments():
    total = tf.Variable(0.0)

    def step(rows):
        total.assign_add(tf.reduce_sum(rows))

    trace = Trace(step, (tf.TensorSpec([None, 3]),), "step")
    assert Program(trace, REPLICAS).without_arguments is None
