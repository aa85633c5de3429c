"""Distances of variables, against numbers worked out by hand."""

import numpy as np
import pytest

from kerasmgpu.distances import (
    is_within,
    nudge,
    nudged,
    relative_difference,
    weight_differences,
)


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


@pytest.mark.parametrize(
    "dtype, unit",
    [
        ("float32", 2**-23),
        ("float64", 2**-52),
        ("float16", 2**-10),
        ("bfloat16", 2**-7),
        ("tensorfloat32", 2**-10),
    ],
)
def test_a_nudge_is_some_units_in_the_last_place(dtype, unit):
    """One unit in 16 bits, where sums are of float32 and rounded once."""
    in_16_bits = unit > 2**-11
    assert nudge(dtype) == (1 if in_16_bits else 8) * unit


def test_each_element_is_nudged_by_itself():
    array = np.full(1000, 2, "float32")
    found = nudged(array, 1e-3, np.random.default_rng(0))
    assert set(found) == {np.float32(1.998), np.float32(2.002)}
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    "dtype, distance, is_rounding",
    [
        ("float32", 0.9, True),
        ("float32", 1.1, False),
        ("tensorfloat32", 0.07, True),
        ("tensorfloat32", 0.09, False),
    ],
)
def test_some_times_the_largest_noise_is_rounding(dtype, distance, is_rounding):
    assert is_within(distance, [1e-3, 0.01], 1e-5, dtype) == is_rounding
    assert is_within(1e-5, [], 1e-5, dtype)
