"""Records of epochs: what they hold."""

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import training_run


def records():
    return training_run.EpochRecords(10)


def test_seconds_are_those_of_the_steps_at_the_measured_rate():
    callback = records()
    callback.on_epoch_end(0, {"loss": 1.0, "steps_per_second": float("nan")})
    callback.on_epoch_end(1, {"loss": 1.0, "steps_per_second": 4.0})
    assert [record["seconds"] for record in callback.history] == [0.0, 2.5]


def test_what_is_not_finite_is_none():
    callback = records()
    callback.on_epoch_end(0, {"loss": 1.0, "speed": float("nan")})
    assert callback.history[0]["speed"] is None


def test_a_diverged_epoch_ends_the_run_and_is_no_record():
    callback = records()
    with pytest.raises(
        InputError, match="after epoch 1; lower the learning rate"
    ):
        callback.on_epoch_end(0, {"loss": float("nan")})
    assert callback.history == []
