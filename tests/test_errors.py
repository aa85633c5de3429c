"""Checks of what users give, and what they say."""

import numpy as np
import pytest

from kerasmgpu.errors import (
    InputError,
    checked_choice,
    checked_counts,
    checked_integer,
    checked_number,
    listed,
    printable,
)


@pytest.mark.parametrize(
    "values, text",
    [([], ""), ([1], "1"), ([1, 2], "1, 2"), ([1, 2, 3, 4], "1, 2 and 2 more")],
)
def test_the_first_values_are_listed(values, text):
    assert listed(iter(values), 2) == text


def test_numpys_integers_count():
    number = checked_integer(np.int64(3), "steps", 1)
    assert number == 3
    assert type(number) is int


@pytest.mark.parametrize("value", [True, 2.0, "2", None, 0])
def test_what_is_no_integer_of_at_least_the_minimum(value):
    with pytest.raises(InputError) as raised:
        checked_integer(value, "steps", 1)
    assert str(raised.value) == (
        f"steps must be an integer of at least 1. Received: steps={value!r}"
    )


def test_counts_are_one_integer_or_several():
    assert checked_counts(np.int64(3)) == [3]
    assert checked_counts([4, 1, 4]) == [1, 4]
    with pytest.raises(InputError, match="replicas must be an integer of at"):
        checked_counts("14", name="replicas")


def test_what_converts_is_a_number():
    assert checked_number(np.float32(0.5), "rate") == 0.5
    assert checked_number(0, "rate", zero_allowed=True) == 0.0


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "1", True, None, [1]])
def test_what_is_no_finite_number_above_0(value):
    with pytest.raises(InputError, match="rate must be a finite number above"):
        checked_number(value, "rate")


def test_a_choice():
    assert checked_choice("min", "mode", ("min", "max")) == "min"
    for value in ("mean", None, ["min"]):
        with pytest.raises(InputError) as raised:
            checked_choice(value, "mode", ("min", "max"))
        assert str(raised.value) == (
            f"mode must be one of min, max. Received: mode={value!r}"
        )


def test_an_input_error_is_a_value_error_that_terminals_can_show():
    assert issubclass(InputError, ValueError)
    assert printable("a\x1b[2Jb\tc — é") == "a\\x1b[2Jb\\tc — é"
