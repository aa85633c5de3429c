"""`keras.RematScope` changes no number, with dropout, moving averages and masks."""

import contextlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from kerasmgpu.flops.recomputation import recomputed
from kerasmgpu.partitioner.step.recompute import Passes, is_copy
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
            layers.SimpleRNN(5),
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


class Added(layers.Layer):
    """Adds a loss, and counts its calls in a `tf.Variable`."""

    def build(self, shape):
        self.calls = tf.Variable(0, trainable=False)
        self.peak = self.add_weight(
            (shape[-1],), initializer="zeros", trainable=False
        )

    def call(self, x):
        self.calls.assign_add(1)
        self.add_loss(0.1 * ops.mean(ops.tanh(x) ** 2))
        # What it reads is assigned, so no gradient goes through it.
        self.peak.assign(ops.maximum(self.peak, ops.max(ops.abs(x), 0)))
        return ops.sin(x) / (1 + self.peak)


class Nested(layers.Layer):
    """Layers in a scope of their own."""

    def __init__(self):
        super().__init__()
        self.added = Added()
        self.inner = keras.Sequential(
            [
                layers.Dense(5, "tanh", activity_regularizer="l2"),
                layers.GaussianDropout(0.2),
                layers.SpectralNormalization(layers.Dense(4)),
            ]
        )

    def build(self, shape):
        self.added.build(shape)
        self.inner.build(shape)

    def call(self, x, training=None):
        return self.inner(ops.gelu(self.added(x)), training=training)


def with_effects(scope, remat):
    keras.utils.set_random_seed(3)
    with scope:
        inputs = keras.Input((6,), sparse=True)
        x = layers.Dense(4, "tanh")(inputs)
        with keras.RematScope("full") if remat else contextlib.nullcontext():
            outer, first = Nested(), layers.Dense(6, "tanh")
            x = outer(first(inputs)) + x
        model = keras.Model(inputs, layers.Dense(2)(x))
        model.compile(
            keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"]
        )
    x = tf.sparse.from_dense(X[:, 0])
    data = tf.data.Dataset.from_tensor_slices((x, Y)).batch(5)
    history = model.fit(data, epochs=2, verbose=0).history
    return [
        *model.get_weights(),
        *history.values(),
        model.evaluate(data, verbose=0),
        model.predict(data, verbose=0),
        model.train_on_batch(tf.sparse.slice(x, [0, 0], [7, 6]), Y[:7]),
        outer.added.calls.numpy(),
    ]


@pytest.fixture(scope="module")
def effects_without():
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    return with_effects(contextlib.nullcontext(), remat=False)


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "num_replicas, settings",
    [
        (1, {"shard": None}),
        (2, {"shard": "weights"}),
        (3, {"shard": None, "micro_batches": 2}),
        (2, {"shard": None, "recompute": "elementwise"}),
    ],
)
def test_effects_as_without(num_replicas, settings, effects_without):
    results = with_effects(mirrored(num_replicas, **settings).scope(), True)
    for own, one in zip(results, effects_without, strict=True):
        np.testing.assert_allclose(own, one, rtol=1e-8, atol=1e-9)


def traced(build):
    """A step's trace for two replicas, of a model that is built in a scope."""
    with mirrored(2, shard=None).scope(), keras.RematScope("full"):
        inputs = keras.Input((4, 6))
        model = keras.Model(inputs, layers.Dense(2)(build(inputs)))
        model.compile("sgd", "mse")
    return prepared_step(model, (X, np.zeros((13, 4, 2))))[0].trace


class Deep(layers.Layer):
    """Two layers of large, cheap intermediate values each."""

    def __init__(self, name):
        super().__init__(name=name)
        self.parts = [layers.Dense(6, "gelu") for _ in range(2)]

    def build(self, shape):
        for part in self.parts:
            part.build(shape)

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return x


def test_inputs_of_layers_are_kept_and_no_more():
    trace = traced(lambda x: Deep("second")(Deep("first")(x)))
    kept, before = (
        [
            tensor.node.name
            for tensor in Passes(graph).saved
            # In float64, casts of its factors are kept, scalars.
            if re.search("/Gelu/(?!Cast)", tensor.node.name)
            and tensor.node.inputs
        ]
        for graph in (trace.graph, trace.original.graph)
    )
    # What each outer layer returns, as the input of the one after it.
    layers_of = [re.search("first|second", name)[0] for name in kept]
    assert sorted(layers_of) == ["first", "second"]
    # Of each of the four: three factors of its derivative, at least.
    assert len(before) >= 12
    copies = [node.name for node in trace.graph.nodes if is_copy(node)]
    for part in ("first", "second"):
        own = [n for n in copies if part in n and "/MatMul/again" in n]
        # The inner layers' input once, and both for their own gradients.
        assert len([n for n in own if n.endswith("/again")]) == 1
        assert len([n for n in own if n.endswith("/again_2")]) == 2


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


@pytest.mark.nightly(but=1)
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
