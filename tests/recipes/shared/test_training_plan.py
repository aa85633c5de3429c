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
