"""The models are what their names say, on every backend the same."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.workloads import WORKLOADS, start_weights

PARAMETERS = {
    # 51 kernels of 32 x 32, and as many rows of biases.
    "deep_narrow": 51 * (32 * 32 + 32),
    "autoencoder": 2 * 3706 * 500 + 2 * 500 * 250 + 500 + 250 + 500 + 3706,
    "convnet": 9 * (3 * 32 + 32 * 64 + 64 * 128) + 224 + 128 * 10 + 10,
    "embeddings": 100_000 * 32 + 32 * 64 + 64 + 64 + 1,
    # He et al. (arXiv:1512.03385): 25.6 million with 1,000 classes.
    "resnet50": 25_636_712 - 990 * (2048 + 1),
    "transformer": 12 * (4 * 65 * 64 + 4 * 64 + 65 * 128 + 129 * 64) + 65,
    # Four gates each.
    "lstm": 4 * 32 * ((16 + 32 + 1) + (32 + 32 + 1)) + 33,
}


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.slow
            if name in ("resnet50", "transformer")
            else (),
        )
        for name in WORKLOADS
    ],
)
def test_model_and_data_fit_each_other(name):
    workload = WORKLOADS[name]
    model, optimizer, loss = workload.build()
    assert model.count_params() == PARAMETERS[name]
    # Eagerly: to trace 51 layers takes longer.
    model.compile(optimizer, loss, run_eagerly=True)
    x, y = workload.arrays(np.random.default_rng(0), 16)
    assert len(x) == len(y) == 16
    before = model.evaluate(x, y, batch_size=16, verbose=0)
    model.fit(x, y, batch_size=16, verbose=0)
    assert model.evaluate(x, y, batch_size=16, verbose=0) != before


@pytest.mark.parametrize("name", WORKLOADS)
def test_data_is_the_same_each_time(name):
    arrays = WORKLOADS[name].arrays
    one = arrays(np.random.default_rng(3), 8)
    two = arrays(np.random.default_rng(3), 8)
    for a, b in zip(one, two):
        np.testing.assert_array_equal(a, b)


def test_gradients_of_embeddings_are_sparse():
    model, _, _ = WORKLOADS["embeddings"].build()
    x, _ = WORKLOADS["embeddings"].arrays(np.random.default_rng(0), 4)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x))
    table = model.trainable_variables[0].value
    assert table.shape == (100_000, 32)
    assert isinstance(tape.gradient(loss, table), tf.IndexedSlices)


def test_starting_weights():
    kernel, biases, again = start_weights([(3, 3, 50, 200), (200,), (50, 9)])
    assert not biases.any()
    # He: the variance is 2 by the inputs of a unit, 3 x 3 x 50.
    assert kernel.std() == pytest.approx(np.sqrt(2 / 450), rel=0.02)
    assert again.std() == pytest.approx(np.sqrt(2 / 50), rel=0.15)
    same, _, _ = start_weights([(3, 3, 50, 200), (200,), (50, 9)])
    np.testing.assert_array_equal(kernel, same)
