"""Distances, against numbers worked out by hand."""

import pytest

from kerasmgpu.distances import log_tolerance
from kerasmgpu.verify.comparison import Comparison


def comparison(**changes):
    none = dict(
        tolerance=1e-5, log_tolerance=1e-5, weights=0.0, slots=0.0, losses=0.0,
        metrics={}, step_logs=0.0, predictions=0.0, spread={}, first_step=None,
        layers=[], update_ratio=1.0, loss_ratio=1.0, by_variable=[],
    )  # fmt: skip
    return Comparison(**{**none, **changes})


@pytest.mark.parametrize(
    "change",
    [
        {"weights": 2e-5},
        {"slots": 2e-5},
        {"losses": 2e-5},
        {"metrics": {"mae": 2e-5}},
        {"step_logs": 2e-5},
        {"predictions": 2e-5},
        {"spread": {"bias": 1e-30}},
    ],
)
def test_every_check_counts_for_parity(change):
    assert comparison().in_parity
    assert not comparison(**change).in_parity


def test_logs_are_compared_less_finely_than_weights():
    assert log_tolerance(1e-5) == 1e-5
    assert log_tolerance(1e-12) == 1e-9
    assert log_tolerance(1e-2) == 1e-2
