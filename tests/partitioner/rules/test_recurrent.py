"""Rules for cuDNN's recurrent layers, on stand-ins for its operations."""

import contextlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.partitioner.runtime import report
from tests.devices import device_names
from tests.partitioner.rules import cudnn
from tests.partitioner.rules.planned import ROWS, Planned, same

STATES = {"lstm": [ROWS, 1, 4], "gru": []}


def cudnn_rnn(x, h, c, parameters, lengths, **attributes):
    return tf.raw_ops.CudnnRNNV3(
        input=x,
        input_h=h,
        input_c=c,
        params=parameters,
        sequence_lengths=lengths,
        time_major=False,
        **attributes,
    )


def recurrent(mode="lstm", **attributes):
    """A function of an input, states, parameters and lengths."""

    def step(x, h, c, parameters, lengths):
        with tf.GradientTape() as tape:
            tape.watch([x, parameters])
            output, last, *_ = cudnn_rnn(
                x, h, c, parameters, lengths, rnn_mode=mode, **attributes
            )
        gradients = tape.gradient([output, last], [x, parameters])
        return output, last, *gradients

    return step


def inputs(mode):
    gates = {"lstm": 4, "gru": 3}[mode]
    return (
        [ROWS, 5, 3],
        [ROWS, 1, 4],
        STATES[mode],
        [gates * (4 * 3 + 4 * 4 + 2 * 4)],
        [ROWS, "int32"],
    )


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_rows_stay_where_they_are(mode):
    plan = Planned(recurrent(mode), *inputs(mode))
    rows = ["rows on 0"] * 3
    assert (plan.kinds, plan.gathered) == ([*rows, "partial sum"], [])


def test_cudnns_own_dropout_runs_on_whole_values():
    plan = Planned(recurrent(dropout=0.5), *inputs("lstm"))
    assert set(plan.kinds) == {"rows on 0", "replicated"}
    assert plan.gathered == ["CudnnRNNV3", "CudnnRNNBackpropV3"]


def test_what_is_kept_for_the_gradient_cant_be_read():
    def step(*given):
        return cudnn_rnn(*given).reserve_space

    parallel = kerasmgpu.partition(step, devices=device_names(2))
    arrays = [np.ones([2, *shape], "f4") for shape in ([5, 3], [1, 4], [1, 4])]
    lengths = np.array([5, 5], "i4")
    with pytest.raises(Exception, match="use_cudnn=False"):
        parallel(*arrays, np.ones(144, "f4"), lengths)


@pytest.mark.parametrize("static", [False, True])
def test_reversed_sequences(static):
    def step(x):
        lengths = 1 + tf.cast(x[:, 0, 0], tf.int32) % 3
        return (tf.reverse_sequence(x, lengths, 1, 0),)

    same(step, [7, 4, 2], num_replicas=3, static=static)


def layers():
    lstm, gru = keras.layers.LSTM, keras.layers.GRU
    return {
        "LSTM": [lstm(4, return_sequences=True), lstm(3)],
        "GRU": [gru(4, return_sequences=True), gru(3, go_backwards=True)],
        "both ways": [keras.layers.Bidirectional(lstm(3)), None],
    }


def trained(name, scope, monkeypatch, cudnn_is_there):
    """Weights after two epochs on 7, 7 and 1 padded sequences."""
    # `keras.src.backend.tensorflow.rnn` is a function as well.
    module = sys.modules["keras.src.backend.tensorflow.rnn"]
    monkeypatch.setattr(module, "_is_gpu_available", lambda: cudnn_is_there)
    keras.utils.set_random_seed(4)
    random = np.random.default_rng(0)
    x = random.integers(1, 9, [15, 6])
    x[np.arange(6) >= random.integers(1, 7, 15)[:, None]] = 0
    y = random.normal(size=[15, 2]).astype("float32")
    with scope:
        model = keras.Sequential([keras.Input((6,), dtype="int32")])
        model.add(keras.layers.Embedding(9, 3, mask_zero=True))
        for layer in filter(None, layers()[name]):
            model.add(layer)
        model.add(keras.layers.Dense(2))
        model.compile(keras.optimizers.SGD(0.5), "mse", jit_compile=False)
    model.fit(x, y, batch_size=7, epochs=2, shuffle=False, verbose=0)
    return model


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.slow if name == "LSTM" else pytest.mark.nightly,
        )
        for name in layers()
    ],
)
def test_keras_layers_as_on_gpus(name, replicas, monkeypatch):
    one = trained(name, contextlib.nullcontext(), monkeypatch, False)
    with cudnn.in_its_place():
        scope = replicas(3).scope()
        many = trained(name, scope, monkeypatch, True)
    (program,) = many.train_function.programs
    types = {node.type for node in program.trace.graph.nodes}
    assert {"CudnnRNNV3", "CudnnRNNBackpropV3"} <= types
    assert not report.whole_products(program)
    assert not {"CudnnRNNV3", "ReverseSequence"} & set(
        report.counts(program)[3]
    )
    for ours, expected in zip(many.get_weights(), one.get_weights()):
        np.testing.assert_allclose(ours, expected, atol=2e-6)
