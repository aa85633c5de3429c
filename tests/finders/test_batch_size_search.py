"""Which sizes are measured, and which is recommended."""

import math

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.finders.batch_size_report import result
from kerasmgpu.finders.batch_size_search import Limits, knee, next_size


def measurement(size, speed=None):
    return {
        "global_batch_size": size,
        "examples_per_second": speed,
        "error": "out of memory" if speed is None else None,
    }


def search(limits, most=math.inf, speed=lambda size: size):
    """Sizes in the order of the search, where sizes above `most` fail."""
    measured = []
    while (size := next_size(measured, limits)) is not None:
        assert size not in [m["global_batch_size"] for m in measured]
        measured.append(
            measurement(size, speed(size) if size <= most else None)
        )
    return measured


def sizes(measured):
    return [m["global_batch_size"] for m in measured]


def largest(measured):
    return max(m["global_batch_size"] for m in measured if m["error"] is None)


def test_doubles_then_bisects_to_a_multiple_of_low():
    found = search(Limits(8), most=100)
    assert sizes(found) == [8, 16, 32, 64, 128, 96, 112, 104]
    assert largest(found) == 96


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 9, 15, 100, 1023, 4097])
@pytest.mark.parametrize("low", [1, 8, 24])
def test_finds_the_largest_of_any_limit(most, low):
    found = search(Limits(low, precision=0), most)
    if most < low:  # Halved: the largest of the powers that fits.
        assert low // largest(found) >= 2 or largest(found) == most
        assert largest(found) <= most
    else:
        assert largest(found) == most // low * low


def test_precision_ends_the_bisection():
    assert largest(search(Limits(1, precision=0.1), most=1000)) > 900
    few, many = (
        search(Limits(1, precision=precision), most=1000)
        for precision in (0.1, 0)
    )
    assert len(few) < len(many) and largest(many) == 1000


def test_low_is_halved_until_something_fits():
    found = search(Limits(64), most=5)
    assert sizes(found) == [64, 32, 16, 8, 4, 6, 5]
    assert search(Limits(4), most=0)[-1] == measurement(1)


def test_ends_at_high():
    assert sizes(search(Limits(8, 50))) == [8, 16, 32, 50]
    assert sizes(search(Limits(8, 4))) == [8]


def test_ends_where_the_curve_is_flat():
    def speed(size):
        return min(size, 32)

    flat = search(Limits(8, 10_000), speed=speed)
    assert sizes(flat) == [8, 16, 32, 64, 128]
    on = search(Limits(8, 10_000, stop_when_flat=False), speed=speed)
    assert largest(on) == 10_000


def test_one_slow_size_is_not_flat():
    speeds = {8: 10, 16: 20, 32: 19, 64: 40, 128: 41, 256: 41}
    assert sizes(search(Limits(8), speed=speeds.get)) == list(speeds)


def test_the_knee_is_the_smallest_of_nearly_the_best_speed():
    # Out of order, as bisection measures them.
    measured = [
        measurement(size, speed)
        for size, speed in [(8, 50), (16, 89), (64, 100), (32, 95)]
    ] + [measurement(128)]
    assert knee(measured) == 32
    assert knee(measured, 0.95) == 32
    assert knee(measured, 0.96) == 64
    assert knee(measured, 0.5) == 8


def test_a_model_that_one_row_is_too_much_for():
    with pytest.raises(InputError, match="one row does not train: out of mem"):
        result({"high": None, "replicas": 1}, search(Limits(1), 0), 0.9)
