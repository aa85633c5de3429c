"""A run that is broken off and continued ends as one that never was."""

import os
import signal
import threading

import keras
import numpy as np
import pytest

import kerasmgpu
from kerasmgpu.callbacks.checkpoints import file_format
from kerasmgpu.callbacks.checkpoints.folder import file_name
from tests.callbacks.checkpoints import runs


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "make_data, break_at",
    [
        (runs.arrays, (1, 5)),
        (runs.shuffled, (1, 5)),
        (runs.generator, (1, 5)),
        *(
            pytest.param(*run, marks=pytest.mark.slow)
            for run in (
                (runs.generator, (2, 3)),
                (runs.unknown_length, (1, 5)),
                (runs.shuffled_twice, (2, 3)),
                (runs.repeated, (1, 5)),
                (runs.counting, (2, 3)),
                (runs.cached, (1, 5)),
                (runs.py_dataset, (2, 3)),
            )
        ),
    ],
)
def test_finds_its_place_in_the_data(tmp_path, make_data, break_at):
    whole = runs.build_eager()
    expected = runs.train(whole, make_data())
    runs.train(
        runs.build_eager(), make_data(), tmp_path, break_at, every_steps=2
    )
    model = runs.build_eager()
    history = runs.train(model, make_data(), tmp_path, every_steps=2)
    runs.require_same(model, history, whole, expected)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_a_data_set_that_ends_where_the_run_was_broken_off(
    tmp_path, replicas, compiled
):
    def build():
        if not compiled:
            return runs.build_eager()
        return runs.build(replicas(2), jit_compile=False)

    whole = build()
    expected = runs.train(whole, runs.unknown_length(), epochs=1)
    runs.train(
        build(),
        runs.unknown_length(),
        tmp_path,
        break_at=(0, 6),
        epochs=1,
        every_steps=6,
    )
    assert names(tmp_path) == ["checkpoint-000000-000000006.npz"]
    model = build()
    history = runs.train(model, runs.unknown_length(), tmp_path, epochs=1)
    runs.require_same(model, history, whole, expected)


@pytest.mark.slow
def test_continues_bit_for_bit_on_one_device(tmp_path):
    def build():
        adam = keras.optimizers.Adam(
            0.01, gradient_accumulation_steps=2, use_ema=True
        )
        scaled = keras.optimizers.LossScaleOptimizer(adam)
        return runs.build(
            optimizer=scaled, steps_per_execution=2, jit_compile=False
        )

    def fit(model):
        early = keras.callbacks.EarlyStopping("mae", patience=1, min_delta=9)
        return runs.train(
            model,
            runs.arrays(),
            tmp_path,
            validation_data=runs.HELD_OUT,
            callbacks=[early],
            every_steps=2,
            keep=100,
        )

    whole, model, finished = build(), build(), build()
    expected = fit(whole)
    assert expected.epoch == [0, 1], "EarlyStopping ended it"
    runs.require_same(finished, fit(finished), whole, expected)
    runs.go_back(tmp_path, 1, 2)
    runs.require_same(model, fit(model), whole, expected)


def test_continues_bit_for_bit_on_replicas(tmp_path, replicas):
    whole, model = (
        runs.build(replicas(3), jit_compile=False) for _ in range(2)
    )
    arguments = {
        "validation_data": runs.HELD_OUT,
        "epochs": 2,
        "every_steps": 2,
        "keep": 100,
    }
    expected = runs.train(whole, runs.shuffled(), tmp_path, **arguments)
    runs.go_back(tmp_path, 1, 4)
    history = runs.train(model, runs.shuffled(), tmp_path, **arguments)
    runs.require_same(model, history, whole, expected)


@pytest.mark.parametrize(
    "before, after", [(2, 1), pytest.param(1, 4, marks=pytest.mark.slow)]
)
def test_continues_on_another_number_of_replicas(
    tmp_path, replicas, before, after
):
    whole = runs.build(replicas(before), jit_compile=False)
    arguments = {"every_steps": 2, "epochs": 2, "keep": 100}
    expected = runs.train(whole, runs.arrays(), tmp_path, **arguments)
    runs.go_back(tmp_path, 1, 2)
    model = runs.build(replicas(after), jit_compile=False)
    history = runs.train(model, runs.arrays(), tmp_path, **arguments)
    np.testing.assert_allclose(
        history.history["mae"], expected.history["mae"], rtol=1e-5
    )
    for array, other in zip(runs.state(model), runs.state(whole)):
        np.testing.assert_allclose(array, other, atol=1e-5)


class TwoOptimizers(keras.Model):
    """A part and an optimizer each for two rows of targets, as in a GAN."""

    def __init__(self):
        super().__init__()
        self.parts = [
            keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            for _ in range(2)
        ]
        self.part_optimizers = [
            keras.optimizers.Adam(0.1),
            keras.optimizers.SGD(0.1, momentum=0.9),
        ]

    def train_step(self, data):
        import tensorflow as tf

        x, y = data
        pairs = zip(self.parts, self.part_optimizers)
        for index, (part, optimizer) in enumerate(pairs):
            with tf.GradientTape() as tape:
                error = part(x)[:, 0] - y[:, index]
                loss = tf.reduce_mean(error**2)
            weights = part.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


def test_models_with_several_optimizers(tmp_path):
    def build():
        keras.utils.set_random_seed(7)
        model = TwoOptimizers()
        model.compile(run_eagerly=True)
        return model

    def weights(model):
        return [w for part in model.parts for w in part.get_weights()]

    whole = build()
    runs.train(whole, runs.arrays())
    runs.train(build(), runs.arrays(), tmp_path, (1, 3), every_steps=2)
    model = build()
    runs.train(model, runs.arrays(), tmp_path, every_steps=2)
    for array, expected in zip(weights(model), weights(whole)):
        np.testing.assert_array_equal(array, expected)


class Told(keras.callbacks.Callback):
    """Notes the hooks that it is called at."""

    def on_train_begin(self, logs=None):
        self.log = []  # No plain data to begin with, so it isn't restored.
        self.log.append(object())

    def on_epoch_begin(self, epoch, logs=None):
        self.log.append(("epoch", epoch))

    def on_train_batch_begin(self, batch, logs=None):
        self.log.append(("step", batch))


def test_callbacks_are_not_told_of_skipped_steps(tmp_path):
    runs.train(
        runs.build_eager(), runs.arrays(), tmp_path, (1, 4), every_steps=2
    )
    told = Told()
    runs.train(
        runs.build_eager(),
        runs.arrays(),
        tmp_path,
        epochs=2,
        every_steps=2,
        callbacks=[told],
    )
    assert told.log[1:] == [("epoch", 1), ("step", 4), ("step", 5)]


def test_keeps_the_last_and_the_best(tmp_path):
    class Losses(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs):
            logs["score"] = [3.0, 9.0, 2.0, 1.0, 4.0][epoch]

    runs.train(
        runs.build_eager(),
        runs.arrays(),
        tmp_path,
        epochs=5,
        keep=2,
        best="score",
        mode="max",
        callbacks=[Losses()],
    )
    assert names(tmp_path) == [
        f"checkpoint-00000{epoch}-000000000.npz" for epoch in (2, 4, 5)
    ]


def test_the_one_before_a_damaged_one_is_taken(tmp_path):
    whole = runs.build_eager()
    expected = runs.train(whole, runs.arrays())
    runs.train(runs.build_eager(), runs.arrays(), tmp_path, (2, 0))
    newest = tmp_path / "checkpoint-000002-000000000.npz"
    newest.write_bytes(newest.read_bytes()[:-100])
    half = tmp_path / ".tmp-checkpoint-000002-000000003.npz"
    half.write_bytes(b"half")
    model = runs.build_eager()
    history = runs.train(model, runs.arrays(), tmp_path)
    runs.require_same(model, history, whole, expected)
    assert f"damaged-{newest.name}" in names(tmp_path)
    assert not half.exists()


def test_nothing_but_damaged_ones_is_an_error(tmp_path):
    (tmp_path / "checkpoint-000001-000000000.npz").write_bytes(b"PK")
    with pytest.raises(kerasmgpu.InputError, match="All 1 checkpoints in"):
        runs.train(runs.build_eager(), runs.arrays(), tmp_path)
    assert names(tmp_path) == ["checkpoint-000001-000000000.npz"]


def test_another_model_is_refused(tmp_path):
    runs.train(runs.build_eager(), runs.arrays(), tmp_path, epochs=1)
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    other.compile("sgd", "mse")
    data = {"x": runs.ROWS, "y": runs.ROWS[:, :3]}
    with pytest.raises(
        kerasmgpu.InputError, match=r"kernel \[4, 2\].*kernel \[4, 3\]"
    ):
        runs.train(other, data, tmp_path)


def test_resume_false_leaves_a_run_alone(tmp_path):
    runs.train(runs.build_eager(), runs.arrays(), tmp_path, epochs=1)
    before = names(tmp_path)
    with pytest.raises(kerasmgpu.InputError, match="resume=False"):
        runs.train(
            runs.build_eager(), runs.arrays(), tmp_path, epochs=1, resume=False
        )
    assert names(tmp_path) == before


@pytest.mark.parametrize(
    "asynchronous, sharded", [(False, False), (True, True)]
)
def test_a_full_disk_stops_training_and_spoils_nothing(
    tmp_path, monkeypatch, asynchronous, sharded
):
    write = file_format.write

    def full(file, manifest, arrays, dtypes=None):
        if "000001-000000002" in file.name:
            file.write(b"half")
            raise OSError(28, "No space left on device")
        write(file, manifest, arrays, dtypes)

    monkeypatch.setattr(file_format, "write", full)
    with pytest.raises(kerasmgpu.InputError, match="No space left on device"):
        runs.train(
            runs.build_eager(),
            runs.arrays(),
            tmp_path,
            every_steps=2,
            asynchronous=asynchronous,
            sharded=sharded,
        )
    monkeypatch.undo()
    assert names(tmp_path)[-1] == file_name(1, 0, sharded)
    whole = runs.build_eager()
    expected = runs.train(whole, runs.arrays())
    model = runs.build_eager()
    history = runs.train(model, runs.arrays(), tmp_path)
    runs.require_same(model, history, whole, expected)


def test_sigterm_saves_and_ends_with_status_75(tmp_path):
    class Preempt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                os.kill(os.getpid(), signal.SIGTERM)

    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as raised:
        runs.train(
            runs.build_eager(), runs.arrays(), tmp_path, callbacks=[Preempt()]
        )
    assert raised.value.code == 75
    assert signal.getsignal(signal.SIGTERM) is handler
    assert names(tmp_path) == ["checkpoint-000000-000000003.npz"]


def test_sigterm_has_its_handler_again_after_an_error(tmp_path):
    handler = signal.getsignal(signal.SIGTERM)
    assert (
        runs.train(runs.build_eager(), runs.arrays(), tmp_path, break_at=(0, 0))
        is None
    )
    assert signal.getsignal(signal.SIGTERM) is handler


def test_trains_in_another_thread_without_signals(tmp_path):
    def run():
        runs.train(runs.build_eager(), runs.arrays(), tmp_path, epochs=1)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert names(tmp_path) == ["checkpoint-000001-000000000.npz"]


def test_saves_by_the_clock(tmp_path, monkeypatch):
    seconds = iter(range(10**6))
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    runs.train(
        runs.build_eager(),
        runs.arrays(),
        tmp_path,
        epochs=1,
        every_seconds=1e-9,
        keep=100,
    )
    assert len(names(tmp_path)) == 6


def test_the_next_fit_begins_at_its_own_epoch(tmp_path):
    runs.train(runs.build_eager(), runs.arrays(), tmp_path, (2, 0))
    model = runs.build_eager()
    runs.train(model, runs.arrays(), tmp_path)
    assert runs.train(model, runs.arrays(), epochs=1).epoch == [0]


@pytest.mark.parametrize(
    "arguments",
    [{"every_steps": 0}, {"every_seconds": -1}, {"keep": 0}, {"sharded": "no"}],
)
def test_arguments_that_can_not_be_meant(tmp_path, arguments):
    with pytest.raises(kerasmgpu.InputError, match=next(iter(arguments))):
        kerasmgpu.callbacks.Checkpoint(tmp_path, **arguments)


def test_two_checkpoints_in_one_fit_are_refused(tmp_path):
    second = kerasmgpu.callbacks.Checkpoint(tmp_path / "second")
    with pytest.raises(kerasmgpu.InputError, match="fit takes one callback"):
        runs.train(
            runs.build_eager(), runs.arrays(), tmp_path, callbacks=[second]
        )


def test_a_log_that_is_not_there_can_not_be_the_best(tmp_path):
    with pytest.raises(kerasmgpu.InputError, match="best='accuracy'"):
        runs.train(runs.build_eager(), runs.arrays(), tmp_path, best="accuracy")


def test_a_model_without_variables_goes_on_beside_a_throughput_logger(
    tmp_path, replicas
):
    """Both stand in front of the model's `train_function`."""

    def fit(epochs):
        with replicas(2).scope():
            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.1), "mse")
        return model.fit(
            np.ones((6, 2), "float32"),
            np.ones((6, 1), "float32"),
            batch_size=3,
            epochs=epochs,
            verbose=0,
            callbacks=[
                kerasmgpu.callbacks.ThroughputLogger(),
                kerasmgpu.callbacks.Checkpoint(tmp_path),
            ],
        )

    first = fit(1).history["loss"]
    again = fit(3)
    assert again.epoch == [0, 1, 2]
    assert again.history["loss"][0] == first[0]
    assert again.history["loss"][2] < first[0]
