import pytest

import kerasmgpu
from kerasmgpu.callbacks.checkpoints.schedule import Best, Schedule


def test_steps_count_over_epochs_and_from_where_a_run_went_on():
    schedule = Schedule(every_steps=5)
    schedule.saved(0.0)
    schedule.start_epoch(2)
    schedule.count(6)
    assert not schedule.steps_are_due()
    schedule.start_epoch(0)
    schedule.count(1)
    assert schedule.steps_are_due()
    schedule.saved(0.0)
    assert not schedule.steps_are_due()


def test_seconds_count_from_the_last_save():
    schedule = Schedule(every_seconds=10)
    schedule.saved(100.0)
    assert not schedule.seconds_are_due(109.9)
    assert schedule.seconds_are_due(110.0)
    assert not schedule.steps_are_due()
    assert not Schedule(every_steps=1).seconds_are_due(1e9)


def test_epochs_count_where_nothing_else_does():
    assert Schedule().every_epoch
    assert not Schedule(every_steps=1).every_epoch


@pytest.mark.parametrize("mode, expected", [("min", 1.0), ("max", 3.0)])
def test_the_best_by_mode(mode, expected):
    best = Best("val_loss", mode)
    better = [best.update({"val_loss": v}) for v in (2.0, 3.0, 1.0)]
    assert better == [True, mode == "max", mode == "min"]
    assert best.value == expected


def test_a_missing_log():
    assert not Best("val_loss", "min").update({"loss": 1.0})
    assert not Best(None, "min").update({"loss": 1.0})
    with pytest.raises(kerasmgpu.InputError, match="the logs are loss"):
        Best("mae", "min").update({"loss": 1.0})
