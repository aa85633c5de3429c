"""Losses outside of steps: whole in a scope, a replica's part in a loop."""

import keras
import numpy as np
import tensorflow as tf

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
