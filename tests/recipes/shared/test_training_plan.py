"""Derived sizes against numbers worked out by hand."""

import types

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import training_plan


def make(num_replicas=4, num_rows=1000, **changes):
    settings = dict(
        batch_size_per_replica=25,
        global_batch_size=None,
        learning_rate=0.01,
        learning_rate_scaling="sqrt",
        warmup_steps=0,
        epochs=3,
        steps=None,
        steps_per_epoch=None,
    )
    settings.update(changes)
    return training_plan.make(
        types.SimpleNamespace(**settings), num_replicas, num_rows
    )


def test_the_batch_grows_with_the_replicas_and_the_rate_by_rule():
    plan = make()
    assert plan.global_batch_size == 100
    assert plan.learning_rate == pytest.approx(0.02)
    assert (plan.steps_per_epoch, plan.epochs, plan.steps) == (10, 3, 30)


def test_a_held_global_batch_leaves_the_rate_alone():
    plan = make(global_batch_size=250)
    assert plan.global_batch_size == 250
    assert plan.learning_rate == 0.01


def test_an_incomplete_last_batch_is_a_step():
    assert make(num_rows=1001).steps_per_epoch == 11


def test_steps_decide_instead_of_epochs():
    plan = make(steps=40, steps_per_epoch=20)
    assert (plan.steps_per_epoch, plan.epochs) == (20, 2)
    plan = make(steps=4)
    assert (plan.steps_per_epoch, plan.epochs) == (4, 1)


def test_describe_names_the_derived_sizes():
    line = make(global_batch_size=250).describe(["CPU:0", "CPU:1"])
    assert "CPU:0, CPU:1" in line
    assert "250 rows, 62 to 63 per replica" in line
    assert "0.01" in line


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(global_batch_size=3), "--global_batch_size=3 for 4 replicas"),
        (dict(steps=45), "divides the steps, such as 9"),
        (dict(warmup_steps=30), "--warmup_steps=30 of 30"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        make(**changes)


def rate_at(step, decay, warmup_steps):
    plan = training_plan.TrainingPlan(2, 10, 0.4, 50, 2, warmup_steps)
    rate = plan.schedule(decay, 0.2)
    return float(rate(step) if callable(rate) else rate)


@pytest.mark.parametrize(
    "step, decay, warmup_steps, expected",
    [
        (0, "none", 0, 0.4),
        (99, "none", 0, 0.4),
        # From 0.2 to 0.4 in ten steps.
        (5, "none", 10, 0.3),
        (10, "none", 10, 0.4),
        # Half the cosine of 100 steps.
        (50, "cosine", 0, 0.2),
        (100, "cosine", 0, 0.0),
        (50, "cosine", 10, 0.2),
    ],
)
def test_learning_rate(step, decay, warmup_steps, expected):
    assert rate_at(step, decay, warmup_steps) == pytest.approx(
        expected, abs=1e-6
    )
