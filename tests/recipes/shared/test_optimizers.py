"""The learning rate over the steps, against numbers worked out by hand."""

import pytest

from kerasmgpu.recipes.shared import optimizers
from kerasmgpu.recipes.shared.training_plan import TrainingPlan


def rate_at(step, decay, warmup_steps):
    plan = TrainingPlan(2, 10, 0.4, 50, 2, warmup_steps)
    optimizer = optimizers.build("sgd", plan, decay, 0.2)
    optimizer.iterations.assign(step)
    return float(optimizer.learning_rate)


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


@pytest.mark.parametrize("name", ["adam", "rmsprop", "sgd"])
def test_optimizers_have_their_names(name):
    plan = TrainingPlan(1, 10, 0.4, 50, 2, 0)
    optimizer = optimizers.build(name, plan, "none", 0.4)
    assert type(optimizer).__name__.lower() == name
