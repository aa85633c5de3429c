"""Gradients in eager code and functions, where no replica runs."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

X = tf.constant([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]])


def loop(enter, wrap):
    """Two steps of a loop of one's own; the scope is entered by `enter`."""
    kernel = keras.Variable([[1.0], [2.0]])
    optimizer = keras.optimizers.Adam(0.1)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((X @ kernel) ** 2)
        optimizer.apply([tape.gradient(loss, kernel)], [kernel])
        return loss

    step = wrap(step)

    def run():
        with enter():
            losses = [step(), step()]
        return losses, kernel

    return run


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("wrap", [tf.function, lambda step: step])
def test_a_loop_of_ones_own_is_that_of_one_device(replicas, inside, wrap):
    expected, one = loop(contextlib.nullcontext, wrap)()
    strategy = replicas(3)
    with strategy.scope():
        run = loop(strategy.scope if inside else contextlib.nullcontext, wrap)
    losses, several = run()
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    for copy in several.value.values:
        np.testing.assert_allclose(copy.numpy(), one.numpy(), rtol=1e-6)


def test_tapes_know_variables_with_several_copies(replicas):
    with replicas(2).scope():
        v = tf.Variable([1.0, 2.0])
        w = tf.Variable(3.0, trainable=False)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(w)
            square = v * v * w
        np.testing.assert_allclose(tape.gradient(square, v), [6.0, 12.0])
        np.testing.assert_allclose(tape.gradient(square, [w])[0], 5.0)
        np.testing.assert_allclose(
            tape.jacobian(square, v), [[6.0, 0.0], [0.0, 12.0]]
        )
        found = {id(variable) for variable in tape.watched_variables()}
        assert found == {id(v), id(w)}
        with tf.autodiff.ForwardAccumulator(
            v, tf.constant([1.0, 0])
        ) as forward:
            total = tf.reduce_sum(v**2)
        assert float(forward.jvp(total)) == 2.0


def test_gradients_in_a_replica_are_those_of_its_copy(replicas):
    strategy = replicas(2)
    with strategy.scope():
        v = tf.Variable(3.0)

    def gradient():
        with tf.GradientTape() as tape:
            loss = v * v
        return tape.gradient(loss, v)

    per_replica = tf.function(lambda: strategy.run(gradient))()
    found = strategy.experimental_local_results(per_replica)
    assert [float(value) for value in found] == [6.0, 6.0]
