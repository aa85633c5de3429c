"""A step that runs out of memory: what was alive, and what would fit."""

import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import kerasmgpu
from kerasmgpu.engine.feeds import Feed
from kerasmgpu.memory import memory_advice
from tests.devices import device_names
from tests.strategies.sharded import (
    mirrored,
    pretended_devices,
    pretended_worker,
)
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


@functools.cache
def on_small_devices(shard):
    """The message of two replicas of 2 MiB each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_advice, "device_bytes", lambda _: 2 << 20)
        return message(mirrored(2, shard))


def test_layers_and_settings_are_named():
    said = on_small_devices(None)
    assert "'net' ran out of memory: 4096 rows on 2 replicas" in said
    # 64 floats of the 4,096 rows of both replicas, for the backward pass.
    by_layer = said.split("by layer: ")[1].split("\n")[0]
    assert "wide 1 MiB" in by_layer
    # The layer that fails reads a mean of all rows: "wide" is kept for these.
    assert "Would fit: micro_batches=4 (" in said
    assert "shard='optimizer', micro_batches=4" in said
    assert "--replicas=2 --global_batch_size=4096 --device_memory=2MiB" in said
    assert "TensorFlow: " in said


def test_without_a_limit_each_settings_bytes_are_told(replicas):
    said = message(replicas(1))
    assert (
        "The memory of the device is not known. Take: micro_batches=2" in said
    )


@pytest.mark.slow
def test_nothing_fits(replicas, monkeypatch):
    monkeypatch.setattr(memory_advice, "device_bytes", lambda _: 1 << 10)
    said = message(replicas(2), batch_size=8)
    assert "Nothing fits on 2 of these devices" in said


def test_slots_that_do_not_fit_are_offered_a_place(monkeypatch):
    """Where devices share the host's memory, that would save nothing."""

    # Weights, gradients and a little more.
    monkeypatch.setattr(memory_advice, "device_bytes", lambda _: 9 << 18)

    def said(shares_memory):
        with pretended_devices(shares_memory), mirrored(1, None).scope():
            dense = [layers.Dense(256, use_bias=False) for _ in range(4)]
            model = keras.Sequential([keras.Input((256,)), *dense])
            model.compile("adam", "mse", jit_compile=False)
            rows = tf.TensorSpec([4, 256])
            step = memory_advice.traced(model, (rows, rows), 4)
            return memory_advice._fitting(step, memory_advice.setting_of(model))

    assert "Would fit: shard='optimizer', offload='optimizer'" in said(False)
    assert "Nothing fits" in said(True)


@pytest.mark.slow
def test_activations_are_offered_to_be_computed_again(monkeypatch):
    monkeypatch.setattr(memory_advice, "device_bytes", lambda _: 18 << 20)
    with mirrored(2, None).scope():
        dense = [layers.Dense(64, activation="gelu") for _ in range(6)]
        model = keras.Sequential([keras.Input((64,)), *dense])
        model.compile("sgd", "mse", jit_compile=False)
        rows = tf.TensorSpec([4096, 64])
        step = memory_advice.traced(model, (rows, rows), 4096)
        # Two replicas: of 4 tensors for each `gelu`, 1 MiB each, 2 fit.
        said = memory_advice._fitting(step, memory_advice.setting_of(model))
    assert "; or micro_batches=1, recompute='auto' (" in said


def test_auto_explains_when_it_gives_up():
    strategy = kerasmgpu.MirroredStrategy(device_names(1), micro_batches="auto")
    said = message(strategy, batch_size=4)
    assert "4 rows on 1 replica" in said
    assert strategy.settings.micro_batches == "auto"


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("shard", ["weights", "optimizer"])
def test_sharded_steps_are_predicted(shard):
    said = on_small_devices(shard)
    assert f"4096 rows on 2 replicas, shard='{shard}', micro_batches=1." in said
    by_layer = said.split("by layer: ")[1].split("\n")[0]
    assert "wide 1 MiB" in by_layer
    assert "Would fit: micro_batches=4 (" in said


def test_a_mesh_is_predicted(monkeypatch):
    monkeypatch.setattr(memory_advice, "device_bytes", lambda _: 3 << 20)
    mesh = keras.distribution.DeviceMesh(
        (2, 2), ("batch", "model"), device_names(4)
    )
    layouts = keras.distribution.LayoutMap(mesh)
    layouts["wide/kernel"] = (None, "model")
    made = keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="batch"
    )
    said = message(kerasmgpu.strategy(distribution=made))
    assert "4096 rows on 4 replicas, micro_batches=1. Predicted: " in said
    assert "Would fit: micro_batches=" in said
    assert "shard" not in said


@pytest.mark.nightly
def test_a_layout_that_was_found_is_predicted():
    """Where no limit is known: the bytes of two numbers of micro-batches."""
    strategy = kerasmgpu.strategy(mesh=(2, 2), layout="auto")
    said = message(strategy)
    assert "4096 rows on 4 replicas, micro_batches=1. Predicted: " in said
    assert "Take: micro_batches=2 (" in said
    # Weights, Adam's two slots of each, its step (8 bytes) and rate (4 bytes).
    weights = (strategy.layouts.found.held - 12) // 3
    assert f"(weights {memory_advice.size(4 * weights)}, " in said


@pytest.mark.slow
def test_the_settings_of_sharded_steps_are_those_of_whole_ones():
    said = map(on_small_devices, (None, "weights"))
    fitting = [one.split("Would fit: ")[1] for one in said]
    assert fitting[0].split("\n")[0] == fitting[1].split("\n")[0]


@pytest.mark.nightly
def test_what_a_function_shards_is_not_predicted(monkeypatch):
    monkeypatch.setattr(memory_advice, "device_bytes", lambda _: 2 << 20)
    said = message(mirrored(2, lambda variable: True))
    assert "2 replicas, shard=a function, micro_batches=1.\nWould fit" in said


class Silent:
    """An agreement of which nothing may be asked."""

    def __getattr__(self, name):
        pytest.fail(f"{name} is a collective")


def test_a_worker_predicts_without_the_others():
    """Also where the others don't run out of memory: by no collective."""
    with pretended_worker(1, 2):
        strategy = mirrored(2, "weights")
        with strategy.scope():
            model = keras.Sequential([keras.Input((8,)), layers.Dense(64)])
            model.compile("adam", "mse")
            model.optimizer.build(model.trainable_variables)
        strategy.replicas.agreement = Silent()
        x = np.ones([ROWS, 8], "float32")
        data = tf.data.Dataset.from_tensors((x, np.ones([ROWS, 64], "float32")))
        said = memory_advice.advice(model, Feed(data, batch_size=ROWS))
    assert "4096 rows on 2 replicas, shard='weights', micro_batches=1." in said


@pytest.mark.slow
def test_moments_of_each_replica_need_all_its_rows(monkeypatch):
    monkeypatch.setattr(memory_advice, "device_bytes", lambda _: 2 << 20)
    said = message(mirrored(2, None, batch_norm="per_replica"))
    assert "Nothing fits on 2 of these devices" in said
    assert "micro_batches=2" not in said


@pytest.mark.slow
def test_what_the_run_computes_again_is_predicted_so(monkeypatch):
    monkeypatch.setattr(memory_advice, "device_bytes", lambda _: 18 << 20)
    predicted = []
    for recompute in (None, "elementwise"):
        with mirrored(2, None, recompute=recompute).scope():
            dense = [layers.Dense(64, activation="gelu") for _ in range(6)]
            model = keras.Sequential([keras.Input((64,)), *dense])
            model.compile("sgd", "mse", jit_compile=False)
        rows = np.zeros((4096, 64), "float32")
        data = tf.data.Dataset.from_tensors((rows, rows))
        said = memory_advice.advice(model, Feed(data, batch_size=4096))
        found = re.search(r"Predicted: ([\d.]+) MiB on each", said)
        predicted.append(float(found[1]))
    assert "2 replicas, micro_batches=1, recompute='elementwise'. Pre" in said
    # Of each `gelu` its input is kept alone, of 4 tensors of a MiB.
    assert predicted[1] < 0.7 * predicted[0]
