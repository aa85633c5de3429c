"""Gradients of 1 x 1 convolutions with strides: a line of JSON per error.

    TF_ENABLE_ONEDNN_OPTS=1 python -m tests.parity.strided_convolution 4 24

Its arguments are the number of input channels and the pictures' size. oneDNN
may end the process at the third line.
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu
import tests.conftest  # noqa: F401  (makes the logical devices)
from benchmarks.exactness import harness
from benchmarks.exactness.registry import Case, Program
from tests.devices import device_names

FILTERS = 8


def gradient_error(channels, size, every_first=False):
    """Largest error of the kernel's gradient, over its largest entry."""
    random = np.random.default_rng(0)
    x = random.normal(size=(8, size, size, channels)).astype("float32")
    y = random.normal(size=(8, -(-size // 2), -(-size // 2), FILTERS))
    y = y.astype("float32")
    exact = np.einsum("bhwi,bhwo->io", x[:, ::2, ::2], y)
    strides = [1, 2, 2, 1]
    if every_first:
        x, strides = tf.nn.max_pool2d(x, 1, 2, "SAME"), [1, 1, 1, 1]
    gradient = tf.raw_ops.Conv2DBackpropFilter(
        input=x,
        filter_sizes=(1, 1, channels, FILTERS),
        out_backprop=y,
        strides=strides,
        padding="SAME",
    )
    return float(np.abs(gradient[0, 0] - exact).max() / np.abs(exact).max())


def weight_distance(channels, size):
    """W of two replicas, see `harness.weight_distance`."""

    def make():
        random = np.random.default_rng(1)
        x = random.normal(size=(10, size, size, channels)).astype("float32")
        y = random.normal(size=(10, 1)).astype("float32")
        model = keras.Sequential(
            [
                keras.Input(x.shape[1:]),
                keras.layers.Conv2D(FILTERS, 1, strides=2, activation="tanh"),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
        return Program(model, dict(x=x, y=y, batch_size=8, shuffle=False))

    case = Case("strided convolution", "", make)
    one, two = (
        harness.run(case, strategy, evaluates=False, predicts=False)
        for strategy in (None, kerasmgpu.MirroredStrategy(device_names(2)))
    )
    return harness.weight_distance(one, two)


if __name__ == "__main__":
    channels, size = map(int, sys.argv[1:])
    for what, measure in (
        ("16 channels", lambda: gradient_error(16, size)),
        ("every second pixel", lambda: gradient_error(channels, size, True)),
        ("gradient", lambda: gradient_error(channels, size)),
        ("W", lambda: weight_distance(channels, size)),
    ):
        print(json.dumps({what: measure()}), flush=True)
