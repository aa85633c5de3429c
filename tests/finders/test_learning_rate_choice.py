"""Suggestions from curves whose best rate is known."""

import math

import pytest

from kerasmgpu.finders.learning_rate_choice import (
    has_diverged,
    longest_valley,
    smooth,
    steepest,
)


def test_the_average_is_corrected_for_its_start():
    assert smooth([3.0] * 5, 0.98) == pytest.approx([3.0] * 5)
    # Weights 0.25 and 0.5 of the two, of a sum of 0.75.
    assert smooth([6.0, 3.0], 0.5) == pytest.approx([6.0, 4.0])
    assert smooth([6.0, 3.0, 7.0], 0.0) == [6.0, 3.0, 7.0]


def test_divergence_is_relative_to_the_least():
    assert not has_diverged([2.0, 1.0, 4.0], 4)
    assert has_diverged([2.0, 1.0, 4.1], 4)
    assert has_diverged([2.0, math.nan], 4) and has_diverged([math.inf], 4)
    # Three times 2 above -2.
    assert not has_diverged([-1.0, -2.0, 4.0], 4)
    assert has_diverged([-1.0, -2.0, 4.1], 4)


def test_the_longest_valley_ends_at_its_lowest_loss():
    assert longest_valley([1.0]) == (0, 0)
    assert longest_valley([1.0, 2.0, 3.0]) == (0, 0)
    assert longest_valley([3.0, 2.0, 4.0, 3.5, 3.2, 3.1, 9.0]) == (2, 5)
    # One loss that rises doesn't end it: 9 8 7 6 5 are five.
    assert longest_valley([9.0, 8.0, 8.5, 7.0, 6.0, 5.0])[1] == 5


def test_the_steepest_descent_of_a_logistic_curve_is_its_middle():
    rates = [10 ** (-5 + n / 10) for n in range(51)]
    losses = [1 / (1 + math.exp(2 * (math.log(r) + 4.6))) for r in rates]
    found = rates[steepest(rates, losses, 0, 50)]
    assert found == pytest.approx(math.exp(-4.6), rel=0.13)
    # Over log(rate), not over the rate or the index.
    assert steepest([1, 10, 11], [3.0, 1.0, 0.5], 0, 2) == 1
    assert steepest([1, 10, 11], [9.0, 1.0, 0.9], 1, 2) == 1
