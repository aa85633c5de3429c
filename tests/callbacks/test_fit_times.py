"""`times.jsonl`: planted sleeps are found where they were planted."""

import json
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.callbacks import Checkpoint, OnFirstWorker, RunRecord
from kerasmgpu.report import figures, run_files

ROWS = np.ones((12, 4), "float32")
EPOCHS, STEPS = 3, 3
TRACING, STEP, HOOK, SAVE, TEST = 0.8, 0.13, 0.11, 0.4, 0.3


def slept(inputs, seconds):
    """Returns the inputs, and sleeps whenever the step runs."""

    def sleep(values):
        time.sleep(seconds)
        return values

    outputs = tf.numpy_function(sleep, [inputs], inputs.dtype)
    outputs.set_shape(inputs.shape)
    return inputs + tf.stop_gradient(outputs - inputs)


class Sleeps(keras.layers.Layer):
    """Sleeps while training is traced, and in each step."""

    def call(self, inputs, training=False):
        if not training:
            return slept(inputs, TEST)
        time.sleep(TRACING)
        return slept(inputs, STEP)


class SleepsInHooks(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(HOOK)


class SleepsAtTheEnds(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        time.sleep(HOOK)

    def on_epoch_begin(self, epoch, logs=None):
        time.sleep(HOOK)

    def on_test_batch_begin(self, batch, logs=None):
        time.sleep(HOOK)

    def on_train_end(self, logs=None):
        time.sleep(HOOK)


class Saves(Checkpoint):
    def after_epoch(self, fit):
        time.sleep(SAVE)
        super().after_epoch(fit)


def recorded(folder, strategy):
    """Trains with sleeps; returns the report's parts, and the wall time."""
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(4), Sleeps()]
        )
        model.compile("sgd", "mse")
    callbacks = [
        SleepsInHooks(),
        OnFirstWorker(SleepsAtTheEnds()),
        RunRecord(folder),
        Saves(folder / "checkpoints"),
    ]
    start = time.perf_counter()
    model.fit(
        ROWS,
        ROWS,
        batch_size=4,
        epochs=EPOCHS,
        verbose=0,
        validation_data=(ROWS[:4], ROWS[:4]),
        callbacks=callbacks,
    )
    wall = time.perf_counter() - start
    (run,) = run_files.read([folder])
    return figures.time_parts(run), wall


@pytest.fixture(scope="module", params=["replicas", "one device"])
def found(request, tmp_path_factory):
    strategy = {
        "replicas": lambda: kerasmgpu.strategy(2),
        "one device": tf.distribute.get_strategy,
    }[request.param]()
    return recorded(tmp_path_factory.mktemp("run") / "run", strategy)


def test_the_parts_add_up_to_the_wall_time(found):
    parts, wall = found
    assert sum(parts.values()) == pytest.approx(wall, rel=0.05)


@pytest.mark.parametrize(
    "name, least",
    [
        ("tracing and compilation", TRACING),
        ("computation", EPOCHS * STEPS * STEP),
        ("callback SleepsInHooks", EPOCHS * STEPS * HOOK),
        ("callback SleepsAtTheEnds", (2 + 2 * EPOCHS) * HOOK),
        ("checkpoints", EPOCHS * SAVE),
        ("validation", EPOCHS * TEST),
    ],
)
def test_sleeps_are_found_where_they_are(found, name, least):
    # As the parts add up, none of a sleep is in another part.
    assert found[0][name] >= least * 0.99


def test_slow_input_is_waited_for(tmp_path):
    def batches():
        while True:
            time.sleep(0.1)
            yield ROWS, ROWS

    with kerasmgpu.strategy(2).scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
        model.compile("sgd", "mse")
    start = time.perf_counter()
    model.fit(
        batches(),
        steps_per_epoch=10,
        epochs=2,
        verbose=0,
        callbacks=[RunRecord(tmp_path)],
    )
    wall = time.perf_counter() - start
    (run,) = run_files.read([tmp_path])
    parts = figures.time_parts(run)
    assert parts["waiting for input"] >= 0.8 * 20 * 0.1
    assert sum(parts.values()) == pytest.approx(wall, rel=0.05)


def test_a_continued_run_adds_up(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    for first, last in ((0, 2), (1, 3)):
        model.fit(
            ROWS,
            ROWS,
            initial_epoch=first,
            epochs=last,
            verbose=0,
            callbacks=[RunRecord(tmp_path), SleepsAtTheEnds()],
        )
    lines = (tmp_path / "times.jsonl").read_text().splitlines()
    # What came after the last epoch has its number; epoch 2 ran again.
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3, 3]


def test_callback_lists_are_left_as_they_were():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    own = [SleepsInHooks()]
    callbacks = keras.callbacks.CallbackList(
        own, add_history=True, model=model, epochs=1, steps=1, verbose=0
    )
    model.fit(ROWS, ROWS, callbacks=callbacks)
    assert type(callbacks.callbacks) is list
    assert callbacks.callbacks[0] is own[0]
