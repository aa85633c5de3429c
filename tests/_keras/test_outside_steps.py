"""Optimizers that are applied, and losses, in scope but outside of steps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

GRADIENT = np.array([1.0, 6.0, 7.0, 2.0], dtype="float32")


def updated(optimizer, call=lambda function: function()):
    """A variable and the count of steps after three updates."""
    variable = keras.Variable([1.0, 2.0, 3.0, 4.0])
    optimizer.build([variable])

    def apply():
        gradient = tf.constant(GRADIENT)
        optimizer.apply_gradients([(gradient, variable)])

    for _ in range(3):
        call(apply)
    return variable, optimizer.iterations


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        lambda: keras.optimizers.Adam(0.1),
        lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
    ],
    ids=["sgd", "adam", "accumulating", "scaling"],
)
def test_all_copies_are_updated_as_on_one_device(replicas, make):
    one, iterations = updated(make())
    with replicas(2).scope():
        two, counted = updated(make())
        assert int(counted) == int(iterations)
    for copy in two.value.values:
        np.testing.assert_allclose(copy.numpy(), one.numpy(), rtol=1e-6)


def test_updates_are_the_same_in_a_graph(replicas):
    one, _ = updated(keras.optimizers.Adam(0.1))
    with replicas(2).scope():
        two, _ = updated(
            keras.optimizers.Adam(0.1), lambda apply: tf.function(apply)()
        )
    for copy in two.value.values:
        np.testing.assert_allclose(copy.numpy(), one.numpy(), rtol=1e-6)


def test_a_custom_loop_sums_gradients_as_in_tensorflow(replicas):
    strategy = replicas(2)
    with strategy.scope():
        two, _ = updated(
            keras.optimizers.SGD(0.1),
            lambda apply: tf.function(lambda: strategy.run(apply))(),
        )
    expected = np.array([1.0, 2.0, 3.0, 4.0]) - 3 * 0.1 * 2 * GRADIENT
    np.testing.assert_allclose(two.numpy(), expected, rtol=1e-6)


Y = np.array([[1.0], [2.0], [3.0]], dtype="float32")
ZEROS = np.zeros_like(Y)


def test_a_loss_in_scope_is_that_of_one_device(replicas):
    loss = keras.losses.MeanSquaredError()
    with replicas(2).scope():
        inside = float(loss(Y, ZEROS))
    assert inside == float(loss(Y, ZEROS)) == np.float32(14 / 3)


def test_compiled_losses_in_scope_are_those_of_one_device(replicas):
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        value = float(model.compute_loss(y=Y, y_pred=tf.constant(ZEROS)))
    np.testing.assert_allclose(value, 14 / 3, rtol=1e-6)


def test_a_replica_of_a_custom_loop_gets_its_part_as_in_tensorflow(replicas):
    strategy, loss = replicas(2), keras.losses.MeanSquaredError()
    values = strategy.run(lambda: loss(Y, ZEROS))
    parts = list(map(float, strategy.experimental_local_results(values)))
    np.testing.assert_allclose(parts, [7 / 3, 7 / 3], rtol=1e-6)
