"""Errors in the graph name the user's line, as one device's do."""

import contextlib
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from tests.devices import device_names

SOURCE = pathlib.Path(__file__).read_text("utf-8").splitlines()
X, Y = np.full((8, 3), 9.0, "float32"), np.ones((8, 3, 2), "float32")


def line_of(mark):
    (number,) = (n for n, line in enumerate(SOURCE, 1) if mark in line)
    return f'{pathlib.Path(__file__).name}", line {number}, in call'


class Table(keras.layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(shape=(4, 2))

    def call(self, inputs):
        rows = tf.cast(inputs, tf.int32)
        return tf.gather(self.table, rows)  # Row 9 of 4.


class InFunction(Table):
    def call(self, inputs):
        @tf.function
        def call(rows):
            return tf.gather(self.table, rows)  # In a function.

        return call(tf.cast(inputs, tf.int32))


def message(strategy, layer, train, **settings):
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = keras.Sequential([keras.Input((3,)), layer])
        model.compile("sgd", "mse", **settings)
    with pytest.raises(tf.errors.InvalidArgumentError) as told:
        train(model)
    return str(told.value)


def fit(model):
    model.fit(X, Y, batch_size=4, verbose=0)


TRAINS = [fit, lambda model: model.train_on_batch(X, Y)]


@pytest.mark.parametrize("replicas_of", [0, 2])
@pytest.mark.parametrize("train", TRAINS, ids=["fit", "train_on_batch"])
def test_the_users_line_is_named(replicas, replicas_of, train):
    strategy = replicas(2) if replicas_of else None
    told = message(strategy, Table(), train)
    assert line_of("# Row 9 " + "of 4.") in told
    assert "stack traces unavailable" not in told


@pytest.mark.parametrize(
    "settings", [{"steps_per_execution": 2}, {"run_eagerly": False}]
)
def test_in_a_loop_of_steps(replicas, settings):
    told = message(replicas(2), Table(), fit, **settings)
    assert line_of("# Row 9 " + "of 4.") in told


def test_in_a_function(replicas):
    told = message(replicas(2), InFunction(), fit)
    assert line_of("# In a " + "function.") in told


@pytest.mark.parametrize("micro_batches", [2, "auto"])
def test_with_micro_batches(micro_batches):
    strategy = kerasmgpu.MirroredStrategy(
        device_names(2), micro_batches=micro_batches
    )
    told = message(strategy, Table(), fit)
    assert line_of("# Row 9 " + "of 4.") in told


def test_of_a_partitioned_function():
    table = tf.zeros((4, 2))

    @kerasmgpu.partition(num_replicas=2)
    def call(rows):
        return tf.gather(table, rows)  # Partitioned.

    with pytest.raises(tf.errors.InvalidArgumentError) as told:
        call(np.full((8,), 9))
    assert line_of("# Parti" + "tioned.") in str(told.value)
