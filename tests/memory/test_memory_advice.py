"""A step that runs out of memory: what was alive, and what would fit."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import kerasmgpu
from kerasmgpu.memory import memory_advice
from tests.strategies.test_micro_batches import RunsOut

ROWS = 1 << 12


def message(strategy, batch_size=ROWS):
    with strategy.scope():
        failing = RunsOut()
        wide = [layers.Dense(64, "tanh", name="wide"), failing, layers.Dense(1)]
        model = keras.Sequential([keras.Input((8,)), *wide], name="net")
        model.compile("adam", "mse")
    failing.times = 100
    x = np.ones([ROWS, 8], "float32")
    with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
        model.fit(x, x[:, :1], batch_size=batch_size, verbose=0)
    return caught.value.message


def test_layers_and_settings_are_named(replicas, monkeypatch):
    limit = 1 << 20
    monkeypatch.setattr(memory_advice, "device_bytes", lambda _: limit)
    said = message(replicas(2))
    assert "'net' ran out of memory: 4096 rows on 2 replicas" in said
    # 64 floats of the 2,048 rows of a replica, for the backward pass.
    by_layer = said.split("by layer: ")[1].split("\n")[0]
    assert "wide 512 KiB" in by_layer
    assert "Would fit: micro_batches=2 (" in said
    assert "shard='optimizer', micro_batches=2" in said
    assert "--replicas=2 --global_batch_size=4096 --device_memory=1MiB" in said
    assert "TensorFlow: " in said


def test_without_a_limit_each_settings_bytes_are_told(replicas):
    said = message(replicas(1))
    assert (
        "The memory of the device is not known. Take: micro_batches=2" in said
    )


def test_nothing_fits(replicas, monkeypatch):
    monkeypatch.setattr(memory_advice, "device_bytes", lambda _: 1 << 10)
    assert "Nothing fits on 2 of these devices" in message(replicas(2))


def test_auto_explains_when_it_gives_up():
    strategy = kerasmgpu.MirroredStrategy(["CPU:0"], micro_batches="auto")
    said = message(strategy, batch_size=4)
    assert "4 rows on 1 replica" in said
    assert strategy.micro_batches == "auto"


def test_sharded_weights_are_predicted_by_the_command():
    strategy = kerasmgpu.MirroredStrategy(
        ["CPU:0", "CPU:1"], shard="weights", min_shard_bytes=0
    )
    said = message(strategy)
    assert "run: kerasmgpu memory my_module:build --replicas=2" in said
