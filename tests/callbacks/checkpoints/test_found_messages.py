"""What is said when a `fit` finds a finished run, other settings or NaN."""

import pathlib

import keras
import numpy as np
import pytest

from kerasmgpu.callbacks.checkpoints import found_messages, snapshot
from tests.callbacks.checkpoints import runs


def progress(**changed):
    facts = dict.fromkeys(snapshot.Progress.__dataclass_fields__)
    return snapshot.Progress(**{**facts, "stop_training": False, **changed})


def test_a_finished_run_says_what_to_do():
    path, now = pathlib.Path("run/a.npz"), {"learning_rate": 0.1, "beta_1": 0.9}
    saved = progress(epoch=3, settings={"learning_rate": 0.01, "beta_1": 0.9})
    assert found_messages.finished(path, saved, 3, now) == (
        "nothing is trained, fit returns the saved result: the run in "
        "run/a.npz has 3 epochs, of epochs=3. To train on, raise epochs; to "
        "train anew, give Checkpoint, or default, another directory. Settings "
        "differ from the saved run's: learning_rate=0.1 (saved: 0.01); the "
        "saved learning rate is restored."
    )
    former = progress(epoch=1, stop_training=True)  # Without settings.
    assert found_messages.finished(path, former, 9, now) == (
        "nothing is trained, fit returns the saved result: the run in "
        "run/a.npz was stopped by a callback after 1 epoch, of epochs=9. To "
        "train, give Checkpoint, or default, another directory."
    )


def test_in_an_epoch_batches_of_another_size_are_counted():
    path, now = pathlib.Path("run/a.npz"), {"batch_size": 64}
    saved = progress(epoch=1, step=7, settings={"batch_size": 50})
    assert found_messages.resuming(path, saved, 3, now) == (
        "resuming from run/a.npz (epoch 2 of 3, step 7). Settings differ from "
        "the saved run's: batch_size=64 (saved: 50); the epoch goes on behind 7 "
        "batches of the new size."
    )


def run(folder, optimizer, loss="mse", epochs=2, **data):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(optimizer, loss, run_eagerly=True)
    runs.train(model, {**runs.arrays(), **data}, folder, epochs=epochs)
    return model


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("epochs", [2, 3])
def test_settings_that_differ_are_named(tmp_path, caplog, epochs):
    run(tmp_path, keras.optimizers.Adam(0.01))
    caplog.clear()
    other = keras.optimizers.Adam(0.1, beta_1=0.5)
    run(tmp_path, other, "mae", epochs, batch_size=8 if epochs == 2 else 4)
    assert ("nothing is trained" in caplog.text) == (epochs == 2)
    for phrase in (
        "learning_rate=0.1 (saved: 0.01)",
        "beta_1=0.5 (saved: 0.9)",
        "loss=mae (saved: mse)",
    ):
        assert phrase in caplog.text
    assert ("batch_size=8 (saved: 4)" in caplog.text) == (epochs == 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.SGD(0.01, momentum=0.5),
        lambda: keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(0.1, 10)
        ),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01)),
    ],
)
def test_the_same_settings_are_not(tmp_path, caplog, make):
    run(tmp_path, make())
    run(tmp_path, make(), epochs=3)
    assert "resuming from" in caplog.text
    assert "differ" not in caplog.text


def test_a_schedule_that_differs(tmp_path, caplog):
    for steps in (10, 20):
        run(
            tmp_path,
            keras.optimizers.SGD(
                keras.optimizers.schedules.CosineDecay(0.1, steps)
            ),
        )
    assert "learning_rate.decay_steps=20 (saved: 10)" in caplog.text


@pytest.mark.slow
def test_a_rate_that_a_callback_has_changed_is_no_other_setting(
    tmp_path, caplog
):
    for epochs in (2, 3):
        keras.utils.set_random_seed(7)
        model = runs.build_eager()
        runs.train(
            model,
            runs.arrays(),
            tmp_path,
            epochs=epochs,
            callbacks=[keras.callbacks.LearningRateScheduler(lambda e: 0.1)],
        )
    assert "resuming from" in caplog.text and "differ" not in caplog.text


def test_weights_with_nan_are_told(tmp_path, caplog):
    run(tmp_path, "sgd")
    assert "NaN" not in caplog.text
    run(tmp_path, "sgd", epochs=3, x=runs.ROWS * np.nan)
    assert "NaN" not in caplog.text
    run(tmp_path, "sgd", epochs=4)
    assert (
        "NaN or infinity in 2 variables, the first of which is" in caplog.text
    )
    assert (
        "delete it to resume from checkpoint-000002-000000000.npz"
        in caplog.text
    )


def test_infinity_of_a_mask_is_no_fault(tmp_path, caplog):
    class Masked(keras.layers.Layer):
        def build(self, shape):
            self.mask = self.add_weight(
                shape=(2,),
                initializer=lambda *_, **__: np.array([0.0, -np.inf]),
                trainable=False,
            )

        def call(self, x):
            return x

    for epochs in (1, 2):
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(2), Masked()]
        )
        model.compile("sgd", "mse", run_eagerly=True)
        runs.train(model, runs.arrays(), tmp_path, epochs=epochs)
        assert "NaN or infinity" not in caplog.text
    assert "resuming from" in caplog.text
