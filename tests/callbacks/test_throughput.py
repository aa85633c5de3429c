"""ThroughputLogger within Keras's own training loop."""

import csv
import json
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.callbacks import ThroughputLogger
from tests.devices import device_names

KEYS = {
    "examples_per_second",
    "examples_per_second_per_replica",
    "steps_per_second",
    "step_seconds_median",
    "step_seconds_p95",
    "input_wait_share",
}


class Sleeper(keras.layers.Layer):
    """Takes a known time in every call, in the compiled step."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def call(self, inputs):
        # Sleeps once the batch is there: it is an argument.
        slept = tf.py_function(
            lambda batch: time.sleep(self.seconds) or 0.0, [inputs], "float32"
        )
        with tf.control_dependencies([slept]):
            return tf.identity(inputs)


def build_model(step_seconds=0.0, optimizer="sgd", **compile_options):
    layers = [keras.layers.Dense(1)]
    if step_seconds:
        layers.insert(0, Sleeper(step_seconds))
    model = keras.Sequential([keras.Input((3,)), *layers])
    model.compile(optimizer, "mse", jit_compile=False, **compile_options)
    return model


def dataset(rows=20, batch=8, wait_seconds=0.0):
    features = np.ones((rows, 3), "float32")
    data = tf.data.Dataset.from_tensor_slices((features, features[:, :1]))
    data = data.batch(batch)
    if wait_seconds:

        def wait(x, y):
            waited = tf.py_function(
                lambda: time.sleep(wait_seconds) or 0.0, [], "float32"
            )
            with tf.control_dependencies([waited]):
                return tf.identity(x), y

        data = data.map(wait)
    # No batch is made ready while the step before it runs: every wait shows.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return data.with_options(options)


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("verbose", [0, 1, 2, "auto"])
def test_figures_reach_history_and_csv_and_two_the_bar(
    tmp_path, capsys, verbose
):
    path = tmp_path / "log.csv"
    model = build_model()
    # The history of an earlier `fit` is left alone.
    before = model.fit(dataset(), verbose=0).history
    history = model.fit(
        dataset(),
        epochs=2,
        verbose=verbose,
        callbacks=[ThroughputLogger(), keras.callbacks.CSVLogger(path)],
    ).history
    assert set(before) == {"loss"}
    assert set(history) == {"loss", *KEYS}
    with open(path) as file:
        rows = list(csv.DictReader(file))
    printed = capsys.readouterr().out
    in_bar = {"examples_per_second": "{:,.0f}", "input_wait_share": "{:.0%}"}
    short = {
        "examples_per_second": "examples/s",
        "input_wait_share": "input wait",
    }
    for key in KEYS:
        assert len(history[key]) == 2
        assert history[key][1] >= 0
        if not verbose or key in in_bar:
            assert float(rows[1][key]) == history[key][1]
        else:
            assert key not in rows[1]
        assert f" {key}:" not in printed
        if key in in_bar:
            shown = f" - {short[key]}: {in_bar[key].format(history[key][1])}"
            assert (shown in printed) == bool(verbose)


@pytest.mark.parametrize("wait, step", [(0.03, 0.03), (0.06, 0.02)])
def test_share_of_waiting_is_right_within_a_tenth(wait, step):
    model = build_model(step_seconds=step)
    history = model.fit(
        dataset(rows=160, wait_seconds=wait),
        epochs=2,
        verbose=0,
        callbacks=[ThroughputLogger()],
    ).history
    assert history["input_wait_share"][1] == pytest.approx(
        wait / (wait + step), abs=0.1
    )


def test_an_input_that_sets_the_pace_shows_in_executions_of_many_steps():
    model = build_model(step_seconds=0.002, steps_per_execution=5)
    history = model.fit(
        dataset(rows=160, wait_seconds=0.03),
        epochs=2,
        verbose=0,
        callbacks=[ThroughputLogger()],
    ).history
    assert history["input_wait_share"][1] > 0.85


@pytest.mark.parametrize("steps_per_execution", [1, 2, 3, 7])
def test_rows_of_incomplete_batches_are_counted(tmp_path, steps_per_execution):
    path = tmp_path / "throughput.jsonl"
    model = build_model(steps_per_execution=steps_per_execution)
    model.fit(
        dataset(rows=20, batch=8),
        epochs=2,
        verbose=0,
        callbacks=[ThroughputLogger(path)],
    )
    for epoch, record in enumerate(records(path)):
        assert record["epoch"] == epoch
        assert record["steps"] == 3
        assert record["examples"] == 20
        assert record["replicas"] == 1
        assert record["devices"] == device_names(1)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(
    "unknown_length", [False, True], ids=["known", "unknown"]
)
def test_without_compilation_and_without_known_length(
    tmp_path, eager, unknown_length
):
    data = dataset(rows=20, batch=8)
    if unknown_length:
        data = data.filter(lambda x, y: True)
        assert data.cardinality() == tf.data.UNKNOWN_CARDINALITY
    path = tmp_path / "throughput.jsonl"
    history = build_model(run_eagerly=eager).fit(
        data, epochs=3, verbose=0, callbacks=[ThroughputLogger(path)]
    )
    assert [record["examples"] for record in records(path)] == [20, 20, 20]
    assert all(rate > 0 for rate in history.history["examples_per_second"])


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "scope, num_replicas, steps_per_execution",
    [
        (tf.distribute.MirroredStrategy, 2, 1),
        (kerasmgpu.MirroredStrategy, 2, 1),
        (kerasmgpu.MirroredStrategy, 3, 2),
    ],
)
def test_replicas_share_the_rate(
    tmp_path, scope, num_replicas, steps_per_execution
):
    path = tmp_path / "throughput.jsonl"
    devices = device_names(num_replicas)
    with scope(devices).scope():
        model = build_model(steps_per_execution=steps_per_execution)
    # The last batch has four rows: uneven over three replicas.
    model.fit(
        dataset(rows=52, batch=12),
        epochs=2,
        verbose=0,
        callbacks=[ThroughputLogger(path)],
    )
    for record in records(path):
        assert record["examples"] == 52
        assert record["devices"] == devices
        assert record["replicas"] == num_replicas
        assert record["examples_per_second_per_replica"] == pytest.approx(
            record["examples_per_second"] / num_replicas
        )


def test_a_step_is_a_batch_under_gradient_accumulation(tmp_path):
    path = tmp_path / "throughput.jsonl"
    optimizer = keras.optimizers.SGD(gradient_accumulation_steps=4)
    model = build_model(optimizer=optimizer)
    model.fit(dataset(rows=64), verbose=0, callbacks=[ThroughputLogger(path)])
    assert int(optimizer.iterations) == 2
    assert records(path)[0]["steps"] == 8


def test_validation_epoch_ends_and_checkpoints_are_left_out():
    class SlowAround(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            time.sleep(0.3)

        def on_test_begin(self, logs=None):
            time.sleep(0.3)

        def on_train_batch_end(self, batch, logs=None):
            if batch == 4:
                time.sleep(0.3)

    history = build_model().fit(
        dataset(rows=80),
        validation_data=dataset(rows=8, wait_seconds=0.3),
        epochs=2,
        verbose=0,
        callbacks=[SlowAround(), ThroughputLogger()],
    )
    # Ten steps; with any of the pauses, fewer than 34 steps a second.
    assert history.history["steps_per_second"][1] > 60


def test_one_instance_serves_several_fits(tmp_path):
    path = tmp_path / "throughput.jsonl"
    logger = ThroughputLogger(path)
    model = build_model()
    for rows in (20, 12):
        model.fit(dataset(rows), epochs=2, verbose=0, callbacks=[logger])
    other = build_model()
    other.fit(dataset(8), verbose=0, callbacks=[logger])
    assert [r["examples"] for r in records(path)] == [20, 20, 12, 12, 8]
    assert [r["epoch"] for r in records(path)] == [0, 1, 0, 1, 0]
    # One step, which compiles: there is nothing to measure, and null says so.
    assert records(path)[-1]["examples_per_second"] is None


def test_the_model_is_left_as_it_was():
    model = build_model()
    model.fit(dataset(), verbose=0)
    before = model.train_function
    first, second = ThroughputLogger(), ThroughputLogger()
    history = model.fit(dataset(rows=40), verbose=0, callbacks=[first, second])
    assert model.train_function is before
    assert history.history["examples_per_second"][0] > 0


def test_an_interrupted_fit_leaves_the_next_one_alone(tmp_path):
    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 1:
                raise KeyboardInterrupt

    model = build_model()
    model.fit(dataset(), verbose=0)
    before = model.train_function
    with pytest.raises(KeyboardInterrupt):
        model.fit(
            dataset(), verbose=0, callbacks=[ThroughputLogger(), Interrupt()]
        )
    path = tmp_path / "throughput.jsonl"
    model.fit(dataset(), verbose=0, callbacks=[ThroughputLogger(path)])
    assert model.train_function is before
    assert [record["examples"] for record in records(path)] == [20]


@pytest.mark.slow
def test_training_is_the_same_with_it():
    weights = []
    for callbacks in ([], [ThroughputLogger()]):
        keras.utils.set_random_seed(3)
        model = build_model(steps_per_execution=2)
        model.fit(dataset(), epochs=2, verbose=0, callbacks=callbacks)
        weights.append(model.get_weights())
    for without, with_it in zip(*weights):
        np.testing.assert_array_equal(without, with_it)
