"""Records of epochs: what they hold."""

import json
import types

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import epoch_records
from kerasmgpu.recipes.shared.run_folder import RunFolder

SETTINGS = types.SimpleNamespace(resume=False)


def records_without_folder():
    return epoch_records.EpochRecords(RunFolder(None, settings=None))


def test_seconds_leave_out_the_first_step_and_validation(monkeypatch):
    now = 0.0
    monkeypatch.setattr(epoch_records.time, "perf_counter", lambda: now)
    callback = records_without_folder()
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    now = 10.0  # The traced step is over.
    callback.on_train_batch_end(0)
    now = 12.0
    callback.on_train_batch_end(1)
    now = 13.0  # The devices are done.
    callback.on_test_begin()
    now = 20.0  # So is validation.
    callback.on_epoch_end(0, {"loss": 1.0})
    callback.on_epoch_begin(1)
    now = 24.0
    callback.on_train_batch_end(0)
    callback.on_epoch_end(1, {"loss": 0.5})
    assert [record["seconds"] for record in callback.history] == [3.0, 4.0]


def test_seconds_of_an_epoch_that_was_broken_off_count(monkeypatch):
    now = 0.0
    monkeypatch.setattr(epoch_records.time, "perf_counter", lambda: now)
    callback = records_without_folder()
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    callback.seconds = 7.0  # As a checkpoint puts it back.
    now = 10.0
    callback.on_train_batch_end(0)
    now = 12.0
    callback.on_epoch_end(0, {"loss": 1.0})
    assert callback.history[0]["seconds"] == 9.0


def test_every_epoch_is_a_line_of_the_history(tmp_path):
    callback = epoch_records.EpochRecords(RunFolder(tmp_path, SETTINGS))
    callback.on_train_begin()
    for epoch in range(2):
        callback.on_epoch_begin(epoch)
        callback.on_epoch_end(epoch, {"loss": 1.0, "speed": float("nan")})
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert list(map(json.loads, lines)) == callback.history
    # JSON has no NaN.
    assert [record["epoch"] for record in callback.history] == [1, 2]
    assert callback.history[0]["speed"] is None


def test_a_diverged_epoch_ends_the_run_and_is_no_record():
    callback = records_without_folder()
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    with pytest.raises(
        InputError, match="after epoch 1; lower the learning rate"
    ):
        callback.on_epoch_end(0, {"loss": float("nan")})
    assert callback.history == []
