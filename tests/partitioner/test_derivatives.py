"""Jacobians and second derivatives, of at most one row per replica."""

import pytest
import tensorflow as tf

from tests.partitioner.rules.planned import same

WEIGHTS = tf.random.stateless_normal([2, 4], seed=(1, 2))


def jacobian(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.tanh(x @ WEIGHTS)
    return tape.batch_jacobian(y, x)


def gradient_of_a_jacobian(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(jacobian(x) ** 2)
    return loss, tape.gradient(loss, x)


def second_derivatives(x):
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(tf.tanh(x @ WEIGHTS), 1)
        first = inner.gradient(y, x)
    return outer.batch_jacobian(first, x)


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "rows", [pytest.param(1, marks=pytest.mark.nightly), 2, 5]
)
@pytest.mark.parametrize(
    "step", [jacobian, gradient_of_a_jacobian, second_derivatives]
)
def test_derivatives_are_those_of_one_device(step, rows):
    for static in (True, False):
        same(step, [rows, 2], num_replicas=3, static=static)
