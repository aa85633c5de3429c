"""What the callbacks add to a step, counted instead of timed."""

import collections
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu import callbacks
from kerasmgpu._keras.step_hooks import HookedSteps

X = np.ones((8, 3), "float32")


class Count(keras.callbacks.Callback):
    """Counts calls of Python functions and of built-in ones in an epoch."""

    calls = 0

    def count(self, frame, event, argument):
        self.calls += event in ("call", "c_call")

    def on_epoch_begin(self, epoch, logs=None):
        self.calls = 0
        sys.setprofile(self.count)


class Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        sys.setprofile(None)


class Step(keras.callbacks.Callback):
    """Keeps the functions that the last step ran."""

    def on_epoch_end(self, epoch, logs=None):
        function = self.model.train_function
        if isinstance(function, HookedSteps):
            function = function.function
        self.written = function.written


def compiled():
    with kerasmgpu.strategy(2).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"], jit_compile=False)
    return model


def fit(model, *given, steps=4, epochs=1):
    data = tf.data.Dataset.from_tensors((X, X[:, :1])).repeat()
    model.fit(
        data,
        steps_per_epoch=steps,
        epochs=epochs,
        verbose=0,
        callbacks=list(given),
    )


def monitoring(folder):
    return [
        callbacks.ThroughputLogger(folder / "throughput.jsonl"),
        callbacks.Progress(),
        callbacks.Monitors(folder / "logs", every=10_000),
        callbacks.DeviceStats(folder / "devices.jsonl"),
        callbacks.RunRecord(folder),
        callbacks.HangWatch(),
    ]


def calls_per_step(model, given):
    """The second epoch's calls, without those of its begin and its end."""
    calls = []
    for steps in (60, 10, 60):  # The first one traces.
        count = Count()
        try:
            fit(model, Stop(), *given, count, steps=steps, epochs=2)
        finally:
            sys.setprofile(None)
        calls.append(count.calls)
    return (calls[2] - calls[1]) / 50


@pytest.mark.slow
def test_all_monitoring_calls_few_functions_per_step(tmp_path):
    model = compiled()
    without = calls_per_step(model, [])
    added = calls_per_step(model, monitoring(tmp_path)) - without
    # A step of 1.5 ms is as long as 20,000 calls.
    assert 0 < added < 50
    # With the iterator as an argument, a step takes 770.
    assert without < 500


@pytest.mark.parametrize("hook", ["on_batch_end", "on_train_batch_begin"])
def test_no_callback_has_a_batch_hook(tmp_path, hook):
    # Keras would wait for each step's results.
    for each in (*monitoring(tmp_path), callbacks.NotFinite()):
        assert getattr(type(each), hook) is getattr(
            keras.callbacks.Callback, hook
        ), type(each)


def operations(written):
    return collections.Counter(
        node.op for function in written.library for node in function.node_def
    )


def test_a_checked_step_computes_no_logs():
    model, step = compiled(), Step()
    fit(model, step)
    plain = step.written
    fit(model, callbacks.NotFinite(), step)
    checked = step.written
    assert checked is not plain
    assert not plain.has_outputs
    assert not checked.has_outputs
    added = operations(checked) - operations(plain)
    assert added.pop("CheckNumerics") == 2
    # The step count, on both replicas, and gradients that wait.
    assert set(added) <= {
        "AddV2",
        "AssignVariableOp",
        "Const",
        "Identity",
        "ReadVariableOp",
    }
    assert added.total() <= 5 + 2 * len(model.trainable_variables)
