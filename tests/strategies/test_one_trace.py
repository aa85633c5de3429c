"""Calls that share a trace, and what it keeps, on one device share it here."""

import contextlib
import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

random = np.random.default_rng(6)
X = random.normal(size=(23, 4)).astype("float32")
Y = X.sum(1, keepdims=True)
WEIGHTS = np.ones(23, "float32")


class Noise(keras.layers.Layer):
    """TensorFlow's random operations count what they drew, each for itself."""

    def call(self, x):
        return x * (1 + 0.3 * tf.random.normal((1, 4)))


def compiled(*layers):
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def logs_shown_later(scope):
    with scope:
        model = compiled(Noise())
    losses = [
        model.fit(X, Y, batch_size=5, verbose=verbose).history["loss"]
        for verbose in (2, 1)
    ]
    return losses, [model.evaluate(X, Y, verbose=v) for v in (0, 2)]


def frozen_between_calls(scope):
    with scope:
        model = compiled(keras.layers.Dense(3))
    model.fit(X, Y, sample_weight=WEIGHTS, batch_size=5, verbose=0)
    model.layers[0].trainable = False  # What Keras finds out in a new trace.
    model.train_on_batch(X, Y, WEIGHTS)
    return model.get_weights()


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("program", [logs_shown_later, frozen_between_calls])
def test_as_on_one_device(program, replicas):
    check(program, replicas)


@pytest.mark.slow
def test_batches_in_shares_and_whole_ones_have_one_trace(like_gpus):
    """GPUs get the rows of `fit` in shares, and those of one step whole."""
    check(frozen_between_calls, like_gpus)


def check(program, replicas):
    results = []
    for scope in (contextlib.nullcontext(), replicas(3).scope()):
        keras.utils.set_random_seed(5)
        results.append(tf.nest.flatten(program(scope)))
    for ours, expected in zip(*reversed(results), strict=True):
        np.testing.assert_allclose(ours, expected, atol=2e-6)


def test_variables_of_a_model_that_fit_builds_are_freed(replicas):
    """They must not stay in TensorFlow's default graph."""
    with replicas(3).scope():
        model = compiled(keras.layers.Dense(3))
    model.fit(X, Y, batch_size=5, verbose=0)
    alive = weakref.ref(model.layers[0].kernel.value)
    assert alive() is not None
    del model
    keras.backend.clear_session()
    gc.collect()
    assert alive() is None
