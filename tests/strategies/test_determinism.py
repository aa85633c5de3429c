"""`deterministic` seeds all generators and chooses kernels that repeat."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu import InputError
from kerasmgpu._keras import xla_choice
from kerasmgpu.engine.private_names import configuration


@pytest.fixture(autouse=True)
def off_again():
    yield
    configuration.disable_op_determinism()


def drawn():
    kerasmgpu.deterministic(seed=7)
    return [
        random.random(),
        np.random.random(),
        float(tf.random.uniform([])),
        float(keras.random.uniform([])),
    ]


def test_all_generators_are_seeded():
    assert drawn() == drawn()


def trained(strategy):
    kerasmgpu.deterministic(seed=7)
    x = np.random.normal(size=(24, 3)).astype("float32")
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(4),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(1),
            ]
        )
        model.compile("adam", "mse")
    dataset = tf.data.Dataset.from_tensor_slices((x, x[:, :1]))
    model.fit(dataset.shuffle(24).batch(8), epochs=2, verbose=0)
    return model


def test_two_runs_have_the_same_bits(replicas):
    one, other = (trained(replicas(2)) for _ in range(2))
    assert configuration.is_op_determinism_enabled()
    for a, b in zip(one.get_weights(), other.get_weights()):
        np.testing.assert_array_equal(a, b)


def test_xla_is_not_chosen_by_its_time(replicas, monkeypatch):
    model = trained(replicas(2))
    assert not xla_choice.is_possible(model)
    configuration.disable_op_determinism()
    assert xla_choice.is_possible(model)


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_a_wrong_seed(seed):
    with pytest.raises(InputError, match="seed must be an integer"):
        kerasmgpu.deterministic(seed)


def test_in_a_scope_it_is_too_late(replicas):
    with replicas(2).scope():
        with pytest.raises(InputError, match="before a model is built"):
            kerasmgpu.deterministic(1)
