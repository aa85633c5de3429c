"""Several callbacks share one measurement of their `fit`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu._keras import step_hooks
from kerasmgpu.callbacks import ThroughputLogger, measurement
from kerasmgpu.callbacks.measurement import Measurement, MeasuringCallback
from kerasmgpu.callbacks.timed_iterator import InputProbe

ROWS = np.ones((24, 3), "float32")


class Reader(MeasuringCallback):
    def __init__(self):
        super().__init__()
        self.figures, self.step_seconds, self.measurements = [], [], []

    def on_epoch_end(self, epoch, logs=None):
        self.measurements.append(self.measurement)
        self.figures.append(self.measurement.finish_epoch())
        self.step_seconds.append(self.measurement.step_seconds)


def compiled():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    return model


def fit(model, *callbacks, **arguments):
    data = tf.data.Dataset.from_tensor_slices((ROWS, ROWS[:, :1])).batch(4)
    return model.fit(data, verbose=0, callbacks=list(callbacks), **arguments)


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_callbacks_share_one_hook_and_the_figures(num_replicas):
    with kerasmgpu.strategy(num_replicas).scope():
        model = compiled()
    hooks = []

    class Hooks(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            hooks.append(step_hooks.hooks_of(self.model))

    first, second = Reader(), Reader()
    history = fit(
        model,
        first,
        ThroughputLogger(),
        second,
        Hooks(),
        epochs=2,
        validation_data=(ROWS, ROWS[:, :1]),
    ).history
    assert [len(each) for each in hooks] == [1, 1]
    assert first.measurements == second.measurements == [hooks[0][0]] * 2
    for epoch in range(2):
        assert first.figures[epoch] is second.figures[epoch]
        assert (
            first.figures[epoch]["examples_per_second"]
            == history["examples_per_second"][epoch]
        )
    # The first step of the first epoch compiles.
    assert [len(steps) for steps in first.step_seconds] == [5, 6]
    assert np.median(first.step_seconds[1]) == pytest.approx(
        history["step_seconds_median"][1]
    )


def test_another_fit_has_another_measurement_and_the_same_trace():
    model, first, second = compiled(), Reader(), Reader()
    fit(model, first)
    traces = first.measurement.probe.traces
    fit(model, second)
    assert first.measurement is not second.measurement
    assert second.measurement.probe is first.measurement.probe
    assert second.measurement.probe.traces == traces > 0


def test_a_fit_inside_a_callback_is_measured_apart():
    inner = Reader()

    class Nested(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            fit(self.model, inner)

    model, outer = compiled(), Reader()
    fit(model, Nested(), outer)
    assert outer.measurement is not inner.measurement
    assert outer.measurement.probe is not inner.measurement.probe
    assert len(inner.measurement.batches) == 6
    assert len(outer.measurement.batches) == 6
    assert not step_hooks.hooks_of(model)


def test_figures_belong_to_their_epoch():
    class Late(keras.callbacks.Callback):
        """Reads figures without beginning the epoch: another callback does."""

        def on_epoch_end(self, epoch, logs=None):
            figures.append(Measurement.of(self).finish_epoch())

    figures, reader = [], Reader()
    fit(compiled(), reader, Late(), epochs=3)
    assert figures == reader.figures
    assert len({id(each) for each in figures}) == 3


@pytest.mark.parametrize("count", [0, 5, 16, 37])
def test_the_probe_returns_batches_in_order(count):
    probe = InputProbe(tf.distribute.get_strategy())
    data = tf.data.Dataset.range(1, count + 1)
    timed = probe.timed(iter(data.map(lambda rows: tf.zeros([rows, 2]))))
    for _ in range(2):
        assert probe.drain() == []
        for _ in timed:
            pass
        rows = list(range(1, count + 1))
        assert [one for one, _ in probe.latest(8)] == rows[-8:]
        found = probe.drain()
        assert [one for one, _ in found] == rows
        assert all(0 <= seconds < 60 for _, seconds in found)
        timed = probe.timed(iter(data.map(lambda rows: tf.zeros([rows, 2]))))


@pytest.mark.parametrize("accumulation", [None, 2])
def test_the_rate_is_that_of_the_last_step(accumulation):
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
        [3], [0.1, 7.0]
    )
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(
        schedule, gradient_accumulation_steps=accumulation
    )
    model.compile(optimizer, "mse")
    assert measurement.learning_rate(model) == pytest.approx(0.1)
    x = np.ones((8, 2), "float32")
    model.fit(x, x[:, :1], batch_size=2, verbose=0)
    assert float(optimizer.learning_rate) == 7  # The next step's.
    assert measurement.learning_rate(model) == pytest.approx(0.1)


def test_the_rate_of_a_number_is_that_number():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.25), "mse")
    assert measurement.learning_rate(model) == 0.25
