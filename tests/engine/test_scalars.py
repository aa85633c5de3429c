"""Variables of a strategy are Python numbers where plain variables are."""

import keras
import numpy as np
import pytest
import tensorflow as tf


@pytest.mark.parametrize(
    "kind, value", [(int, 3), (float, 0.5), (complex, 2.0 + 1.0j)]
)
def test_a_variable_with_copies_is_a_number(replicas, kind, value):
    with replicas(2).scope():
        variable = tf.Variable(value)
    assert kind(variable) == value


@pytest.mark.parametrize("value", [0.5, [1.0, 2.0]])
def test_a_variable_with_copies_is_an_array_in_and_out_of_scope(
    replicas, value
):
    with replicas(2).scope():
        variable = tf.Variable(value)
        inside = np.array(variable)
    outside = np.asarray(variable, dtype="float64")
    assert inside.dtype == np.float32 and outside.dtype == np.float64
    assert np.array_equal(inside, value) and np.array_equal(outside, value)


def test_a_variable_whose_copies_are_summed_is_their_sum(replicas):
    with replicas(2).scope():
        variable = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    for copy, value in zip(variable.values, (1.0, 2.0)):
        copy.assign(value)
    assert float(variable) == 3.0


def test_the_step_count_of_a_model_is_a_number(replicas):
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(tf.ones([4, 1]), tf.ones([4, 1]), batch_size=2, verbose=0)
    assert int(model.optimizer.iterations) == 2
    assert int(model.optimizer.iterations.value) == 2
