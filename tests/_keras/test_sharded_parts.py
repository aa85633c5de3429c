"""The line about `shard` that divides nothing."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import kerasmgpu
from tests.devices import device_names


@pytest.fixture
def told(caplog):
    """Function: the lines after a short training of a model."""
    caplog.set_level(logging.WARNING, "absl")

    def told(strategy, *hidden, optimizer="adam", embeds=False):
        with strategy.scope():
            first = [layers.Embedding(6, 4), layers.Flatten()] if embeds else []
            model = keras.Sequential(
                [keras.Input((3,)), *first, *hidden, layers.Dense(2)]
            )
            model.compile(optimizer, "mse")
        x, y = np.ones((8, 3), "float32"), np.ones((8, 2), "float32")
        model.fit(x, y, epochs=2, batch_size=4, verbose=0)
        return [m for m in caplog.messages if "divides nothing" in m]

    return told


def mirrored(shard, replicas=2, **keywords):
    names = device_names(replicas)
    return kerasmgpu.MirroredStrategy(names, shard=shard, **keywords)


@pytest.mark.parametrize(
    "shard, keywords, reasons",
    [
        (
            "weights",
            {},
            "shard='weights' divides nothing of the model 'sequential"
            "|its largest variable, 'sequential"
            "|has 24 bytes, and min_shard_bytes=16384. Each of the 2 replicas",
        ),
        ("optimizer", {}, "its largest slot of an optimizer, "),
        ("optimizer", {"optimizer": "sgd"}, "has no slot of an optimizer. "),
        ("embeddings", {}, "it has no table of a keras.layers.Embedding. "),
        (
            "embeddings",
            {"embeds": True},
            "its largest table of a keras.layers.Embedding, ",
        ),
        (
            lambda variable: False,
            {},
            "shard=a function divides nothing of the model",
        ),
    ],
)
def test_why_nothing_is_sharded(told, shard, keywords, reasons):
    keras.utils.clear_session()
    (line,) = told(mirrored(shard), **keywords)
    for reason in reasons.split("|"):
        assert reason in line


def test_reasons_without_a_limit(told):
    (line,) = told(mirrored(lambda variable: None, min_shard_bytes=0))
    assert ": the function chose no variable. " in line


def test_axes_that_are_too_short(told):
    (line,) = told(mirrored("weights", replicas=4, min_shard_bytes=0))
    assert "no variable has an axis with an element per replica" in line


@pytest.mark.parametrize(
    "shard, keywords",
    [
        ("weights", {}),
        ("optimizer", {}),
        ("embeddings", {"embeds": True}),
        (lambda variable: variable.kind == "weight", {}),
    ],
)
def test_nothing_is_said_of_what_is_sharded(told, shard, keywords):
    assert not told(mirrored(shard, min_shard_bytes=0), **keywords)


@pytest.mark.slow
def test_nothing_is_said_without_shard_or_replicas(told):
    for strategy in (mirrored(None), mirrored("none"), mirrored("weights", 1)):
        assert not told(strategy)


def test_none_shards_nothing():
    strategy = mirrored("none", min_shard_bytes=0)
    assert strategy.settings.shard is None
    with strategy.scope():
        assert len(tf.Variable(tf.zeros((8, 8))).values) == 2
