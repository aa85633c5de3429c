"""The private names of Keras and TensorFlow that the exact step relies on.

A Keras release that renames, removes or re-types one of them fails here first.
"""

import inspect

import keras
import pytest
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.tensorflow.trainer import (
    TensorFlowTrainer,
    TFEpochIterator,
)
from keras.src.losses import loss as loss_module
from keras.src.optimizers.base_optimizer import BaseOptimizer

import kerasmgpu
from kerasmgpu import _keras
from kerasmgpu._keras import seams


@pytest.fixture(autouse=True)
def installed(replicas):
    replicas(2)


@pytest.mark.parametrize(
    "owner, name", seams.SEAMS, ids=lambda part: getattr(part, "__name__", part)
)
def test_seam_is_dispatched_and_keeps_its_original(owner, name):
    there = getattr(owner, name)
    if isinstance(there, property):
        return
    assert callable(there.__wrapped__)
    module = there.__wrapped__.__module__
    assert module.startswith(("keras.src.", "tensorflow.python."))


@pytest.mark.parametrize(
    "function, parameters",
    [
        (loss_module.reduce_values, ["values", "sample_weight", "reduction"]),
        (
            loss_module.apply_mask,
            ["sample_weight", "mask", "dtype", "reduction"],
        ),
        (BaseOptimizer.apply, ["self", "grads", "trainable_variables"]),
        (
            TensorFlowTrainer._maybe_symbolic_build,
            ["self", "iterator", "data_batch"],
        ),
    ],
)
def test_signatures_are_those_that_dispatchers_pass_on(function, parameters):
    assert list(inspect.signature(function).parameters) == parameters


def test_layers_keep_their_losses_where_the_replicas_attribute_looks():
    layer = keras.layers.Dense(1)
    assert layer._losses == [] and layer._loss_ids == set()
    assert isinstance(layer.__dict__["_losses"], list)


def test_keras_threads_start_without_the_settings_of_their_parent():
    assert hasattr(global_state, "GLOBAL_STATE_TRACKER")
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        assert _keras.thread_state()["dtype_policy"].name == "mixed_bfloat16"
    finally:
        keras.config.set_dtype_policy("float32")


def test_trainer_hands_its_step_to_the_strategy():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    assert _keras.trainer_of(model.train_step) is model
    assert _keras.trainer_of(lambda: None) is None
    assert "_distributed_dataset" in inspect.getsource(TFEpochIterator)


def test_keras_outside_the_checked_range_is_warned_about(monkeypatch):
    monkeypatch.setattr(seams, "KERAS_RANGE", ((2, 0), (2, 1)))
    with pytest.warns(UserWarning, match="kerasmgpu was checked on Keras 2.0"):
        seams._warn_outside_range()


def test_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(kerasmgpu.InputError, match="KERAS_BACKEND=tensorflow"):
        seams._require_tensorflow_backend()


@pytest.mark.skipif(
    tuple(map(int, keras.version().split(".")[:2])) < (3, 12),
    reason="Keras has had `_autoconvert_optionals` since 3.12",
)
def test_a_step_is_no_graph_inside_the_graph_of_its_execution(replicas):
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    step = model._autoconvert_optionals(tf.function(lambda data: data + 1))
    whole = tf.function(step).get_concrete_function(tf.constant(1.0))
    kinds = {node.type for node in whole.graph.get_operations()}
    assert "AddV2" in kinds and "PartitionedCall" not in kinds
    assert float(step(tf.constant(1.0))) == 2.0  # `train_on_batch` calls it.
