"""Rounding falls with the precision, and is as large as what a nudge does."""

import numpy as np

from kerasmgpu.verify.rounding import falls, is_like_noise
from tests.verify.test_comparison import comparison


def test_in_16_bits_a_fault_is_soon_larger_than_rounding():
    noise = comparison(tolerance=0.16, weights=0.04, by_variable=[[0.04]])
    fault = comparison(tolerance=0.16, weights=0.5, by_variable=[[0.5]])
    assert not is_like_noise(fault, [noise], "bfloat16")
    assert is_like_noise(fault, [noise], "float32")


def exact(**changes):
    return comparison(tolerance=1e-12, log_tolerance=1e-9, **changes)


def test_a_hundred_times_what_a_nudge_does_is_rounding():
    noise = exact(weights=1e-11, by_variable=[[1e-11, 0.0]])
    near = exact(weights=9e-10, by_variable=[[9e-10, 9e-13]])
    assert is_like_noise(near, [noise], "float64")
    far = exact(weights=1.1e-9, by_variable=[[1.1e-9, 0.0]])
    assert not is_like_noise(far, [noise], "float64")


def test_each_variable_has_its_own_noise():
    """A momentum that a nudge leaves as it is shows a gradient off by 1e-6."""
    noise = exact(weights=0.5, slots=0.5, by_variable=[[0.5, 1e-14]])
    assert is_like_noise(
        exact(weights=1.0, by_variable=[[1.0, 0.0]]), [noise], "float64"
    )
    fault = exact(weights=1.0, slots=1e-6, by_variable=[[1.0, 1e-6]])
    assert not is_like_noise(fault, [noise], "float64")


def test_each_step_has_its_own_noise():
    """What grows to rounding's size, but is there before, is a fault."""
    noise = exact(weights=1.0, by_variable=[[1e-14], [1.0]])
    fault = exact(weights=1.0, by_variable=[[1e-9], [1.0]])
    assert not is_like_noise(fault, [noise], "float64")


def test_the_largest_of_several_nudges_counts():
    """An accuracy jumps where two numbers are equal, or it doesn't."""
    jumps = exact(metrics={"accuracy": 0.2}, by_variable=[[0.0]])
    still, moved = exact(by_variable=[[0.0]]), jumps
    assert not is_like_noise(jumps, [still], "float64")
    assert is_like_noise(jumps, [still, moved], "float64")


def test_copies_that_differ_are_no_rounding():
    noise = exact(weights=1.0, spread={"bias": 1.0}, by_variable=[[1.0]])
    divergent = exact(spread={"bias": 1e-9}, by_variable=[[0.0]])
    assert not is_like_noise(divergent, [noise], "float64")
    assert not falls(comparison(spread={"bias": 1e-9}), exact(), "float32")


def test_rounding_falls_as_the_precision_does():
    # 2^-23 / 2^-52 = 2^29, about 5e8.
    own = comparison(weights=6e-2)
    assert falls(own, exact(weights=3.8e-11), "float32")
    assert not falls(own, exact(weights=1e-12), "float32")
    assert not falls(own, exact(), "float32")


def test_logs_follow_from_weights_that_round():
    own = comparison(weights=6e-2, metrics={"accuracy": 0.04})
    assert falls(own, exact(weights=3.8e-11), "float32")
    alone = comparison(metrics={"accuracy": 0.04})
    assert not falls(alone, exact(weights=3.8e-11), "float32")


def test_a_fault_of_float32_alone_does_not_fall_enough():
    """Sums that are made in float16: exact in float64."""
    own = comparison(weights=1e-3)
    assert not falls(own, exact(weights=np.finfo("float64").eps), "float32")
