"""FLOPs by rows, by layer and of a strategy's step."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.callbacks import ThroughputLogger, local_devices
from kerasmgpu.commands.traced_step import trace_step
from kerasmgpu.flops import trained_step
from kerasmgpu.flops.counting import count
from kerasmgpu.flops.step_flops import layer_of, layers_in, value
from kerasmgpu.hardware import data_sheets
from tests.flops import closed_forms

L = keras.layers
PATHS = {"m", "m/block", "m/block/dense", "m/dense", "m/dense_1", "m/rnn"}
PATHS |= {"m/rnn/cell", "m/other", "m/other/rows"}


@pytest.mark.parametrize(
    "operation, layer",
    [
        ("m_1/dense_1/MatMul", "m/dense"),
        ("m_1/dense_1_1/MatMul", "m/dense_1"),
        ("gradient_tape/m_1/block_1/dense_1/MatMul/MatMul_1", "m/block/dense"),
        # A layer's second call.
        ("m_1/block_3/dense_1/MatMul", "m/block/dense"),
        ("m_1/block_1/einsum/Einsum", "m/block"),
        ("m_1/rnn_1/while/cell_1/MatMul", "m/rnn/cell"),
        (
            "gradient_tape/m_1/rnn_1/while/gradients/m_1/rnn_1/while/cell_1/"
            "MatMul_grad/MatMul",
            "m/rnn/cell",
        ),
        # In `keras.remat`, and of a model in a model's `train_step`.
        ("rows_1/MatMul", "m/other/rows"),
        ("gradient_tape/other_1/rows_1/MatMul", "m/other/rows"),
        ("StatefulPartitionedCall/m_1/dense_1/MatMul", "m/dense"),
        ("muon/MatMul", "muon"),
        ("MatMul", "MatMul"),
    ],
)
def test_layer_of(operation, layer):
    assert layer_of(operation, PATHS) == layer


def by_layer(flops, model):
    """`{layer: (forward, backward)}` of one row."""
    paths = dict(layers_in(model))
    found = {}
    for path, products in flops.by_layer(paths).items():
        sums = [0, 0]
        for one in products:
            sums[one.is_backward] += value(one.flops, 1)
        found[path.partition("/")[2]] = tuple(sums)
    return found


def test_gradients_belong_to_their_layers(replicas):
    with replicas(2).scope():
        model, data, _ = closed_forms.gan()
        flops = count(trace_step(model, data, 8).program.trace.graph)
    dense, dense_1 = [layer.name for layer in model.generator.layers]
    dense_2, dense_3 = [layer.name for layer in model.critic.layers]
    assert by_layer(flops, model) == {
        f"generator/{dense}": (3 * 64, 64),
        f"generator/{dense_1}": (3 * 96, 2 * 96),
        # Five batches in all; two are real.
        f"critic/{dense_2}": (5 * 192, 4 * 192 + 192),
        f"critic/{dense_3}": (5 * 32, 4 * 2 * 32 + 32),
    }


class Recomputed(L.Layer):
    """Layers in `keras.remat`, with dropout."""

    def __init__(self):
        super().__init__()
        self.inner = [
            L.Dense(6),
            L.Dropout(0.5),
            L.Dense(5, "tanh"),
            L.Dense(4),
        ]

    def call(self, x):
        def run(x):
            for layer in self.inner:
                x = layer(x)
            return x

        return keras.remat(run)(x)


def test_recomputation_is_no_model_flops(replicas):
    with replicas(2).scope():
        model = keras.Sequential(
            [keras.Input((3, 8)), L.Dense(8), Recomputed(), L.Dense(2)]
        )
        model.compile("sgd", "mse")
        x, y = np.zeros((2, 8, 3, 8), "float32")
        y = y[..., :2]
        flops = count(trace_step(model, (x, y), 8).program.trace.graph)
    # No gradient needs the output of the last of the layers again.
    again, last = 3 * (8 * 6 + 6 * 5), 3 * 5 * 4
    per_row = 2 * (2 * 3 * 8 * 8 + 3 * (again + last) + 3 * 3 * 4 * 2)
    assert flops.formula() == f"{per_row} · rows"
    assert flops.total(10, recomputed=True) == 10 * (per_row + 2 * again)


def test_two_passes_with_dropout_are_no_recomputation(replicas):
    """As in R-Drop and SimCSE: the same batch twice, other masks."""
    with replicas(2).scope():
        inputs = keras.Input((4,))
        one = keras.Sequential([L.Dropout(0.5), L.Dense(3)])
        model = keras.Model(inputs, one(inputs) + one(inputs))
        model.compile("sgd", "mse")
        x, y = np.zeros((8, 4), "float32"), np.zeros((8, 3), "float32")
        flops = count(trace_step(model, (x, y), 8).program.trace.graph)
    assert flops.total(1) == flops.total(1, recomputed=True)
    assert flops.total(1) == 2 * 2 * 2 * 4 * 3


def trained(strategy, batch_size=8, **settings):
    """A model of 2 * (2 * 12 + 3 * 8) operations per row, after 2 epochs."""
    rows = 20
    x = np.ones((rows, 3), "float32")
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((3,)), L.Dense(4, use_bias=False), L.Dense(2)]
        )
        model.compile("sgd", "mse", **settings)
    history = model.fit(
        x,
        x[:, :2],
        batch_size=batch_size,
        epochs=2,
        verbose=0,
        callbacks=[ThroughputLogger()],
    )
    return model, history.history


PER_ROW = 2 * (2 * 12 + 3 * 8)


@pytest.mark.nightly(but=3)
@pytest.mark.parametrize(
    "arguments, settings",
    [
        ({}, {}),
        ({"shard": "weights", "min_shard_bytes": 0}, {}),
        ({"shard": "optimizer", "micro_batches": 2}, {}),
        ({"micro_batches": "auto"}, {}),
        ({}, {"jit_compile": True}),
        ({}, {"steps_per_execution": 2}),
    ],
)
def test_flops_per_step_of_a_strategy(arguments, settings):
    strategy = kerasmgpu.MirroredStrategy(["CPU:0", "CPU:1"], **arguments)
    assert strategy.flops_per_step is None
    model, _ = trained(strategy, **settings)
    assert strategy.flops_per_step == 8 * PER_ROW
    assert strategy.trained_step.flops.formula() == f"{PER_ROW} · rows"
    del model


def test_counting_waits_until_it_is_asked_for(monkeypatch):
    counted = []
    monkeypatch.setattr(
        trained_step, "count", lambda graph: counted.append(1) or count(graph)
    )
    strategy = kerasmgpu.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = keras.Sequential([L.Dense(1)])
        model.compile("sgd", "mse")
    x = np.ones((8, 3), "float32")
    model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0)
    assert not counted
    assert strategy.flops_per_step == 8 * 2 * 2 * 3
    model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0)
    assert strategy.flops_per_step == 8 * 2 * 2 * 3
    assert len(counted) == 1


def test_figures_of_an_epoch(monkeypatch):
    monkeypatch.setattr(local_devices, "reported_name", lambda name: "Tesla T4")
    strategy = kerasmgpu.MirroredStrategy(["CPU:0", "CPU:1"])
    _, history = trained(strategy)
    for rate, flops, mfu in zip(
        history["examples_per_second"],
        history["flops_per_second"],
        history["mfu"],
    ):
        assert flops == pytest.approx(rate * PER_ROW)
        # Two replicas of a device without TensorFloat-32.
        assert mfu == pytest.approx(rate * PER_ROW / 2 / 8.1e12)


@pytest.mark.parametrize(
    "name, level, word",
    [
        ("NVIDIA GeForce RTX 3090 Ti", "WARNING", "3090 Ti"),
        (None, "INFO", "CPU"),
    ],
)
def test_no_mfu_where_the_peak_is_not_known(monkeypatch, name, level, word):
    said = []
    monkeypatch.setattr(
        local_devices.logging, "log_first_n", lambda *given: said.append(given)
    )
    if name is not None:
        monkeypatch.setattr(local_devices, "reported_name", lambda _: name)
    strategy = kerasmgpu.MirroredStrategy(["CPU:0", "CPU:1"])
    _, history = trained(strategy)
    assert "flops_per_second" in history
    assert "mfu" not in history
    known, text, times, *values = said[-1]
    assert (known, times) == (getattr(local_devices.logging, level), 1)
    assert word in text % tuple(values)


def test_no_figures_without_our_strategy():
    rates = {"examples_per_second": 80.0, "steps_per_second": 10.0}
    assert local_devices.utilization(tf.distribute.get_strategy(), rates) == {}


def test_utilisation_counts_each_data_type_by_its_peak(replicas):
    with replicas(2).scope():
        policy = keras.dtype_policies.DTypePolicy("mixed_float16")
        model = keras.Sequential(
            [keras.Input((3,)), L.Dense(4, dtype=policy), L.Dense(2)]
        )
        model.compile("sgd", "mse")
        x = np.ones((8, 3), "float32")
        step = trace_step(model, (x, x[:, :2]), 8)
    flops = count(step.program.trace.graph)
    assert flops.by_dtype(8) == {
        "float16": 8 * 2 * 2 * 12,
        "float32": 8 * 2 * 3 * 8,
    }
    device = data_sheets.required("A100-40GB")
    seconds = 8 * 2 * 2 * 12 / 312e12 + 8 * 2 * 3 * 8 / 156e12
    assert flops.seconds_at_peak(device, 8) == pytest.approx(seconds)
    slower = 8 * 2 * 2 * 12 / 312e12 + 8 * 2 * 3 * 8 / 19.5e12
    assert flops.seconds_at_peak(device, 8, False) == pytest.approx(slower)
