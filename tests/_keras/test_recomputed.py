"""`keras.RematScope` changes no number, with dropout, moving averages and masks."""

import contextlib

import keras
import numpy as np
import pytest
from keras import layers

from kerasmgpu.flops.recomputation import recomputed
from kerasmgpu.strategies.layout_report import prepared_step
from tests.strategies.sharded import mirrored

X = np.random.default_rng(0).normal(size=(13, 4, 6))
X[:, 3] = 0  # Masked.
Y = X[:, 0, :2]

MODES = {
    "full": {},
    "larger_than": {"output_size_threshold": 5},
    "list_of_layers": {"layer_names": ["block"]},
}


@pytest.fixture(autouse=True)
def in_float64():
    for name in ("float64", "float32"):
        keras.config.set_floatx(name)
        keras.config.set_dtype_policy(name)
        if name == "float64":
            yield


class Block(layers.Layer):
    """Layers that draw random numbers, assign variables, and read a mask."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.parts = [
            layers.Dropout(0.3),
            layers.BatchNormalization(),
            layers.LSTM(5),
            layers.Dense(7, "gelu"),
        ]
        self.supports_masking = True

    def build(self, shape):
        for part, size in zip(self.parts, (6, 6, 6, 5)):
            part.build((shape[0], size) if size == 5 else shape)

    def compute_mask(self, inputs, previous_mask):
        return None

    def call(self, x, training=None):
        for part in self.parts:
            x = part(x)
        return x


def trained(strategy=None, remat=None):
    """Weights and losses; whether the step computes anything again."""
    keras.utils.set_random_seed(2)
    with contextlib.ExitStack() as stack:
        if strategy:
            stack.enter_context(strategy.scope())
        if remat:
            mode = keras.RematScope(remat, **MODES[remat])
            stack.enter_context(mode)
        inputs = keras.Input((4, 6))
        x = layers.Masking()(inputs)
        model = keras.Model(inputs, layers.Dense(2)(Block(name="block")(x)))
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
        history = model.fit(
            X, Y, batch_size=5, epochs=2, shuffle=False, verbose=0
        )
    again = strategy and recomputed(prepared_step(model, (X, Y))[0].trace.graph)
    return [*model.get_weights(), history.history["loss"]], again


@pytest.mark.parametrize(
    "remat, settings",
    [
        ("full", {"shard": "weights"}),
        ("larger_than", {"shard": None}),
        ("list_of_layers", {"shard": "weights", "micro_batches": 2}),
    ],
)
def test_as_without(remat, settings):
    expected, _ = trained()
    results, again = trained(mirrored(2, **settings), remat)
    for own, one in zip(results, expected, strict=True):
        np.testing.assert_allclose(own, one, rtol=1e-8, atol=1e-9)
    assert again
