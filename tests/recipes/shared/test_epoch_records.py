"""Records of epochs: what they hold, and that a state can be gone on with."""

import types

import keras
import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import epoch_records
from kerasmgpu.recipes.shared.run_folder import RunFolder

X = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")


def make_model():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    return model


def fit(folder, epochs):
    model = make_model()
    history = epoch_records.restore(model, folder)
    model.fit(
        X,
        X[:, :1] * 2,
        initial_epoch=len(history),
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[epoch_records.EpochRecords(folder, history)],
    )
    return model, history


def open_folder(path, resume=False):
    folder = RunFolder(path, types.SimpleNamespace(resume=resume, epochs=4))
    folder.start()
    return folder


def test_going_on_ends_where_an_uninterrupted_run_ends(tmp_path):
    whole, history = fit(open_folder(tmp_path / "whole"), epochs=4)
    fit(open_folder(tmp_path / "cut"), epochs=2)
    resumed, records = fit(open_folder(tmp_path / "cut", resume=True), epochs=4)
    assert [record["epoch"] for record in records] == [1, 2, 3, 4]
    assert [record["loss"] for record in records] == [
        record["loss"] for record in history
    ]
    for variable, other in zip(whole.variables, resumed.variables):
        np.testing.assert_array_equal(variable, other)
    assert int(resumed.optimizer.iterations) == 4


def test_seconds_leave_out_the_first_step_and_validation(monkeypatch):
    now = 0.0
    monkeypatch.setattr(epoch_records.time, "perf_counter", lambda: now)
    history = []
    callback = epoch_records.EpochRecords(
        types.SimpleNamespace(path=None), history
    )
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    now = 10.0  # The traced step is over.
    callback.on_train_batch_end(0)
    now = 13.0
    callback.on_train_batch_end(1)
    callback.on_test_begin()
    now = 20.0  # So is validation.
    callback.on_epoch_end(0, {"loss": 1.0})
    callback.on_epoch_begin(1)
    now = 24.0
    callback.on_train_batch_end(0)
    callback.on_epoch_end(1, {"loss": 0.5})
    assert [record["seconds"] for record in history] == [3.0, 4.0]


def test_what_json_lacks_becomes_none():
    history = []
    callback = epoch_records.EpochRecords(
        types.SimpleNamespace(path=None), history
    )
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    callback.on_epoch_end(0, {"loss": 1.0, "speed": float("nan")})
    assert history[0]["speed"] is None


def test_a_diverged_epoch_ends_the_run_and_is_not_saved(tmp_path):
    folder = open_folder(tmp_path)
    callback = epoch_records.EpochRecords(folder, [])
    callback.set_model(make_model())
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    with pytest.raises(
        InputError, match="after epoch 1; lower the learning rate"
    ):
        callback.on_epoch_end(0, {"loss": float("nan")})
    assert folder.last_checkpoint() == (None, [])
