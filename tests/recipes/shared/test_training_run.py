"""Records of epochs: what they hold."""

import json
import types

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import training_run
from kerasmgpu.recipes.shared.run_folder import RunFolder

SETTINGS = types.SimpleNamespace(resume=False)


def records_without_folder():
    return training_run.EpochRecords(RunFolder(None, settings=None), 10)


def test_seconds_are_those_of_the_steps_at_the_measured_rate():
    callback = records_without_folder()
    callback.on_epoch_end(0, {"loss": 1.0, "steps_per_second": float("nan")})
    callback.on_epoch_end(1, {"loss": 1.0, "steps_per_second": 4.0})
    assert [record["seconds"] for record in callback.history] == [0.0, 2.5]


def test_every_epoch_is_a_line_of_the_history(tmp_path):
    callback = training_run.EpochRecords(RunFolder(tmp_path, SETTINGS), 10)
    for epoch in range(2):
        callback.on_epoch_end(epoch, {"loss": 1.0, "speed": float("nan")})
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert list(map(json.loads, lines)) == callback.history
    # JSON has no NaN.
    assert [record["epoch"] for record in callback.history] == [1, 2]
    assert callback.history[0]["speed"] is None


def test_a_diverged_epoch_ends_the_run_and_is_no_record():
    callback = records_without_folder()
    with pytest.raises(
        InputError, match="after epoch 1; lower the learning rate"
    ):
        callback.on_epoch_end(0, {"loss": float("nan")})
    assert callback.history == []
