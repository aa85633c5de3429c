"""Distances, against numbers worked out by hand."""

import numpy as np
import pytest

from kerasmgpu.distances import (
    log_tolerance,
    relative_difference,
    weight_differences,
)
from kerasmgpu.verify.comparison import Comparison


def test_weight_difference_is_by_the_largest_update_of_its_kind():
    start = [np.zeros(2), np.zeros(1), np.zeros(1), np.zeros(1)]
    one = [np.array([0.0, 4.0]), np.ones(1), np.array([100.0]), np.ones(1)]
    many = [np.array([1.0, 4.0]), np.ones(1), np.array([95.0]), np.zeros(1)]
    kinds = ["trainable", "trainable", "state", "seed"]
    found = weight_differences(start, one, many, kinds, steps=1)
    # 1 of 4, none, 5 of 100; seeds don't count.
    assert found == pytest.approx([0.25, 0, 0.05, 0])


def test_rounding_of_storage_is_no_difference():
    start = [np.ones(1, "float32")]
    one = [np.float32([1 + 2**-13])]
    units = np.finfo("float32").eps
    near = [one[0] + np.float32(3 * units)]
    assert weight_differences(start, one, near, ["trainable"], 3) == [0]
    assert weight_differences(start, one, near, ["trainable"], 2)[0] > 0


def test_not_a_number_is_infinitely_far():
    start, one = [np.zeros(1)], [np.ones(1)]
    for many in ([np.array([np.nan])], [np.ones(2)]):
        found = weight_differences(start, one, many, ["trainable"], 1)
        assert found == [np.inf]


def test_difference_without_an_update_is_infinite():
    still, moved = [np.zeros(1)], [np.ones(1)]
    found = weight_differences(still, still, moved, ["trainable"], 1)
    assert found == [np.inf]


def test_relative_difference_has_a_least_scale():
    assert relative_difference([2.0, 4.0], [2.0, 3.0]) == 0.25
    assert relative_difference(0.0, 1e-6) == pytest.approx(1e-3)
    assert relative_difference([1.0], [1.0, 1.0]) == np.inf
    assert relative_difference(1.0, np.nan) == np.inf
    assert relative_difference([np.nan, 1.0], [np.nan, 1.0]) == 0


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
