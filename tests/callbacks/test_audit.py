"""Audit compares steps with one device, accuses whom it should, and changes nothing."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import kerasmgpu
from kerasmgpu import InputError
from kerasmgpu.callbacks import Audit, RunRecord, audit, audit_verdict
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.runtime.one_device_step import OneDeviceStep

ROWS, BATCH = 58, 13


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Compares from the first execution on, however long that takes."""
    monkeypatch.setattr(audit, "FIRST", 1)
    monkeypatch.setattr(audit, "SHARE", float("inf"))


def data():
    random = np.random.default_rng(0)
    return random.normal(size=(ROWS, 6)).astype("float32")


def plain(optimizer="sgd", frozen=None, **compile_options):
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(7, "relu", name="first"),
            layers.Dense(5, "tanh", name="second"),
            layers.Dense(1, name="third"),
        ]
    )
    if frozen is not None:
        model.get_layer(frozen).trainable = False
    model.compile(optimizer, "mse", metrics=["mae"], **compile_options)
    return model


def convolutions():
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Reshape((3, 2, 1)),
            layers.Conv2D(4, 2, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    adam = keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(adam, loss, metrics=["accuracy"])
    return model


def masked():
    inputs = keras.Input((6,))
    x = layers.Lambda(lambda x: tf.cast(tf.abs(x) * 3, tf.int32))(inputs)
    x = layers.Embedding(20, 4, mask_zero=True)(x)
    x = layers.LSTM(4, return_sequences=True)(x)
    x = layers.MultiHeadAttention(2, 2)(x, x)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    model = keras.Model(inputs, layers.Dense(1)(x))
    model.compile("adam", "mse", metrics=[keras.metrics.RootMeanSquaredError()])
    return model


def half():
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, "relu", dtype="mixed_float16"),
            layers.Dense(1),
        ]
    )
    adam = keras.optimizers.Adam(0.01)
    scaled = keras.optimizers.LossScaleOptimizer(adam, initial_scale=2.0**17)
    model.compile(scaled, "mse")
    return model


class OwnStep(keras.Model):
    """Counts its steps, and has two optimizers and a metric of its own."""

    def __init__(self):
        super().__init__()
        self.dense, self.other = layers.Dense(4), layers.Dense(1)
        self.count = self.add_weight(shape=(), dtype="int32", trainable=False)
        self.second_optimizer = keras.optimizers.Adam(0.01)
        self.mean = keras.metrics.Mean(name="mean")

    def call(self, x, training=False):
        return self.other(self.dense(x))

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        for optimizer, layer in (
            (self.optimizer, self.dense),
            (self.second_optimizer, self.other),
        ):
            weights = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
        self.count.assign_add(1)
        self.mean.update_state(loss)
        return {"loss": loss, "mean": self.mean.result()}


def own():
    model = OwnStep()
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9))
    return model


def built(strategy, build):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        return build()


def fit(model, *callbacks, epochs=1, **options):
    x = data()
    is_classes = "Sparse" in type(getattr(model, "loss", "")).__name__
    y = (x[:, :1] > 0).astype("int32") if is_classes else x[:, :1] * x[:, 1:2]
    return model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=epochs,
        verbose=0,
        callbacks=list(callbacks),
        **options,
    )


def audited(model, **options):
    """Trains with an audit of every step; returns the verdicts."""
    found = Audit(every=1)
    fit(model, found, **options)
    return [verdict for _, verdict in found.findings]


EQUALLY = audit_verdict.Finding(audit_verdict.EQUAL, {})
EQUAL = {audit_verdict.EQUAL, audit_verdict.ROUNDING}
WEIGHTS = {"shard": "weights", "min_shard_bytes": 0}


OFFLOADED = {
    "shard": "optimizer",
    "min_shard_bytes": 0,
    "offload": "optimizer",
}
CASES = {
    "convolutions": (convolutions, 2, {}),
    "own step": (own, 3, {}),
}
SLOW_CASES = {
    "float16": (half, 2, {"micro_batches": 2}),
    "several steps": (
        lambda: plain("adam", steps_per_execution=2),
        4,
        WEIGHTS,
    ),
    "convolutions, sharded": (convolutions, 4, WEIGHTS),
    "own step, sharded": (own, 2, WEIGHTS),
    "masks": (masked, 2, WEIGHTS),
    "masks, whole": (masked, 3, {}),
    "float16, sharded": (half, 4, WEIGHTS),
    "XLA": (lambda: plain("adam", jit_compile=True), 2, {}),
    "micro-batches": (plain, 2, {"micro_batches": "auto"}),
    "offload": (lambda: plain("adam"), 2, OFFLOADED),
    "one replica": (plain, 1, {}),
}


@pytest.mark.parametrize(
    "case",
    [*CASES, *(pytest.param(c, marks=pytest.mark.slow) for c in SLOW_CASES)],
)
def test_a_sound_step_is_equal(case):
    build, num_replicas, settings = {**CASES, **SLOW_CASES}[case]
    strategy = kerasmgpu.strategy(num_replicas, **settings)
    model = built(strategy, build)
    verdicts = audited(model, epochs=2)
    assert set(verdicts) <= EQUAL
    assert len(verdicts) == 2 * (3 if model.steps_per_execution == 2 else 5)


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("settings", [WEIGHTS, {}], ids=["sharded", "whole"])
def test_a_run_has_the_same_bits_with_and_without(settings):
    strategy, ended = kerasmgpu.strategy(2, **settings), []
    for callbacks in ([], [Audit(every=1)]):
        model = built(strategy, convolutions)
        history = fit(model, *callbacks, epochs=2).history
        optimizer = [np.array(v) for v in model.optimizer.variables]
        variables = [np.array(v) for v in model.variables]
        drawn = tf.random.normal([3]).numpy()
        ended.append((history, [*variables, *optimizer, drawn]))
    assert len(callbacks[0].findings) == 10
    (one, arrays), (other, others) = ended
    assert one == other
    for a, b in zip(arrays, others):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: plain("sgd"), marks=pytest.mark.nightly),
        lambda: plain("adam"),
        # Nudges of weights are as large as its updates.
        lambda: plain(keras.optimizers.SGD(2e-5)),
    ],
    ids=["sgd", "adam", "small updates"],
)
def test_a_fault_of_a_sum_is_named_with_its_layer(
    replicas, monkeypatch, caplog, make
):
    sums = Replicas._sums

    def wrong(self, build, tensors, parts):
        parts = [
            [part[0]] * len(part) if tensor.shape == (7, 5) else part
            for tensor, part in zip(tensors, parts)
        ]
        return sums(self, build, tensors, parts)

    monkeypatch.setattr(Replicas, "_sums", wrong)
    verdicts = audited(built(replicas(3), make))
    assert set(verdicts) == {audit_verdict.OURS}
    line = caplog.records[-1].getMessage()
    assert "differ from one device in layer 'second' (sequential" in line
    assert "CPU:0, CPU:1 and CPU:2 agree: the fault is kerasmgpu's" in line
    assert "evidence.json" in line


def broken(monkeypatch, change):
    """Has `change(device, kernel, run number)` change what one-device runs leave."""
    run, numbers = OneDeviceStep.run, iter(range(1, 1000))

    def changed(self, device, tensors, state, *more):
        made = run(self, device, tensors, state, *more)
        for array in made:
            if array is not None and array.shape == (7, 5):
                change(device, array, next(numbers))
        return made

    monkeypatch.setattr(OneDeviceStep, "run", changed)


@pytest.mark.parametrize(
    "num_replicas, text",
    [
        (3, "CPU:0 differs from CPU:1 and CPU:2 in layer 'second' ("),
        pytest.param(
            2,
            "CPU:0 and CPU:1 differ from each other in layer 'second' (",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_broken_device_is_named(
    replicas, monkeypatch, caplog, num_replicas, text
):
    def change(device, kernel, number):
        kernel[0] += 0.1 * device.endswith(":0")

    broken(monkeypatch, change)
    verdicts = audited(built(replicas(num_replicas), plain))
    assert set(verdicts) == {audit_verdict.DEVICE}
    assert text in caplog.records[-1].getMessage()


def test_a_kernel_that_is_not_deterministic_is_named(
    replicas, monkeypatch, caplog
):
    def change(device, kernel, number):
        kernel[0] += 0.01 * number

    broken(monkeypatch, change)
    verdicts = audited(built(replicas(2), plain))
    assert set(verdicts) == {audit_verdict.KERNEL}
    line = caplog.records[-1].getMessage()
    assert (
        "CPU:0 gives another result when it runs again, in layer 'sec" in line
    )
    assert "kerasmgpu.deterministic()" in line


def test_a_device_with_other_bits_is_named(replicas, caplog):
    model = built(replicas(3), lambda: plain(frozen="third"))
    kernel = model.get_layer("third").kernel.value.values[2]
    kernel.assign(kernel * (1 + 2e-7))
    assert set(audited(model)) == {audit_verdict.COPIES}
    said = " ".join(record.getMessage() for record in caplog.records)
    assert "of layer 'third' on CPU:2 has other bits than on CPU:0 and" in said


def out_of_memory(monkeypatch, least):
    run, tried = OneDeviceStep.run, []

    def scarce(self, device, tensors, state, micro_batches):
        tried.append(micro_batches)
        if micro_batches < least:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM")
        return run(self, device, tensors, state, micro_batches)

    monkeypatch.setattr(OneDeviceStep, "run", scarce)
    return tried


@pytest.mark.slow
def test_a_batch_too_large_for_a_device_runs_in_parts(
    replicas, monkeypatch, tmp_path
):
    tried = out_of_memory(monkeypatch, 2)
    found = Audit(every=1, path=tmp_path / "evidence.json")
    fit(built(replicas(2), plain), found)
    assert {verdict for _, verdict in found.findings} <= EQUAL
    assert tried[:2] == [1, 2]
    assert 1 not in tried[1:]
    written = json.loads((tmp_path / "evidence.json").read_text())
    assert written["steps"][0]["micro_batches_of_one_device"] == 2


def test_a_batch_too_large_in_parts_is_said(replicas, monkeypatch, caplog):
    caplog.set_level("INFO")
    tried = out_of_memory(monkeypatch, 99)
    assert audited(built(replicas(2), plain)) == [audit_verdict.NOT_RUN]
    assert tried == [1, 2, 4]
    assert "step 1 is not compared: one device has too little" in caplog.text


class Noise(layers.Layer):
    def call(self, x):
        return x + 0.1 * tf.random.normal(tf.shape(x))


class Python(layers.Layer):
    calls = 0

    def call(self, x):
        def count(x):
            Python.calls += 1
            return x

        y = tf.numpy_function(count, [x], tf.float32)
        return tf.stop_gradient(tf.ensure_shape(y, x.shape)) + x


@pytest.mark.parametrize(
    "layer, text",
    [
        (Noise, "the step has RandomStandardNormal, which may do something"),
        (Python, "the step has PyFunc, which may do something else"),
    ],
)
def test_a_step_that_cannot_run_again_is_left_alone(
    replicas, caplog, layer, text
):
    caplog.set_level("INFO")
    Python.calls = 0
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((6,)), layer(), layers.Dense(1)])
        model.compile("sgd", "mse")
    assert audited(model) == [audit_verdict.NOT_RUN]
    assert text in caplog.text
    assert caplog.text.count("is not compared") == 1
    assert Python.calls % 5 == 0


@pytest.mark.parametrize(
    "make, options, text",
    [
        (tf.distribute.get_strategy, {}, "isn't in the scope of a strategy"),
        (lambda: kerasmgpu.strategy(2), {"run_eagerly": True}, "run eagerly"),
        (
            lambda: kerasmgpu.strategy(2, batch_norm="per_replica"),
            {},
            "is another model than one",
        ),
    ],
)
def test_what_is_not_compared_is_said_once(caplog, make, options, text):
    caplog.set_level("INFO")
    model = built(make(), lambda: plain(**options))
    assert audited(model) == []
    assert caplog.text.count("no step is compared with one device:") == 1
    assert text in caplog.text


def test_it_takes_a_hundredth_of_the_time(replicas, monkeypatch):
    monkeypatch.setattr(audit, "FIRST", 3)
    monkeypatch.setattr(audit, "SHARE", 0.01)
    monkeypatch.setattr(audit_verdict, "finding", lambda runs: EQUALLY)
    now, around, step = [0.0], audit._Audits.around, audit._Audits._around_step

    def execution(self, run, iterator):
        now[0] += 1
        return around(self, run, iterator)

    def compared(self, program, written, run, tensors):
        began, now[0] = now[0], now[0] + 0.09
        outputs = step(self, program, written, run, tensors)
        self._took = now[0] - began
        return outputs

    monkeypatch.setattr(audit.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(audit._Audits, "around", execution)
    monkeypatch.setattr(audit._Audits, "_around_step", compared)
    found = Audit(every=4)
    fit(built(replicas(2), plain), found, epochs=8)
    # After 9 s of steps at least, and at a multiple of 4 steps.
    assert [number for number, _ in found.findings] == [3, 15, 27, 39]


def test_evidence_is_beside_the_record_of_a_run(replicas, tmp_path, capsys):
    model = built(replicas(2), plain)
    fit(model, Audit(), RunRecord(tmp_path))
    found = json.loads((tmp_path / "evidence.json").read_text())
    assert found["format"] == audit_verdict.FORMAT
    assert found["layers"]["Dense"] == 3
    assert found["devices"] == ["CPU:0", "CPU:1"]
    assert found["replicas"] == 2
    assert found["steps_compared"] == 1
    assert found["verdict"] in EQUAL
    assert {"first", "second", "third"} <= set(found["largest_differences"])
    assert found["versions"]["kerasmgpu"] == kerasmgpu.__version__
    said = capsys.readouterr().out
    assert "audit: 1 step compared with one device: equal" in said
    assert said.endswith(f"see {tmp_path / 'evidence.json'}\n")


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"every": 0}, "every must be an integer"),
        ({"path": ""}, "path must be a path"),
        ({"evry": 3}, "is every meant"),
    ],
)
def test_wrong_arguments(arguments, text):
    with pytest.raises(InputError, match=text):
        Audit(**arguments)
