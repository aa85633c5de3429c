"""The arithmetic of scaling, against numbers worked out by hand."""

import math

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.plan.link_rates import link
from kerasmgpu.plan.step_time import (
    Link,
    Machines,
    Prediction,
    Step,
    all_reduce_seconds,
    last_that_helps,
    predict,
    ring_seconds,
)

FAST, SLOW = Link(100.0, 0.25), Link(10.0, 1.0)


def step(**changes):
    """64 rows in 6 seconds, 1200 bytes to sum."""
    facts = dict(rows=64, compute_seconds=6.0, reduced_bytes=1200.0)
    return Step(**{**facts, **changes})


def test_ring_all_reduce():
    # 2 (3 - 1) messages of 400 bytes at 100 a second, each 0.25 s late.
    assert ring_seconds(1200.0, 3, FAST) == 4 * (4.0 + 0.25)
    assert ring_seconds(1200.0, 1, FAST) == 0.0


def test_ring_brings_at_most_twice_the_bytes():
    seconds = ring_seconds(1e9, 10**6, Link(1e9))
    assert seconds == pytest.approx(2.0, rel=1e-5)


def test_hierarchical_is_a_ring_inside_and_one_between():
    machines = Machines(4, FAST, SLOW)
    # Inside: 6 messages of 300 bytes. Between 3 machines: 4 of 400.
    expected = 6 * (3.0 + 0.25) + 4 * (40.0 + 1.0)
    assert all_reduce_seconds(1200.0, 12, machines) == expected
    # Nine replicas need three machines too.
    assert all_reduce_seconds(1200.0, 9, machines) == expected
    # Within one machine the slow link is not met.
    assert all_reduce_seconds(1200.0, 4, machines) == 6 * 3.25


def test_one_ring_goes_at_the_pace_of_its_slowest_link():
    machines = Machines(4, FAST, SLOW, algorithm="ring")
    # 22 messages of 100 bytes at 10 a second, each 1 s late.
    assert all_reduce_seconds(1200.0, 12, machines) == 22 * (10.0 + 1.0)


def test_one_replica_per_machine_never_meets_the_inner_link():
    for algorithm in ("hierarchical", "ring"):
        machines = Machines(1, Link(1e-9), SLOW, algorithm)
        assert all_reduce_seconds(1200.0, 2, machines) == 2 * (60.0 + 1.0)


def test_several_machines_need_a_link():
    with pytest.raises(InputError, match="give the link between machines"):
        all_reduce_seconds(1.0, 5, Machines(4, FAST))


def test_weak_scaling():
    # 2 messages of 600 bytes at 100 a second: 12.5 s beside 6 s of compute.
    two = predict(step(), Machines(2, FAST), 2)
    assert two.global_batch_size == 128
    assert two.step_seconds == 6.0 + 12.5
    assert two.examples_per_second == 128 / 18.5
    assert two.speed_up == pytest.approx(2 * 6.0 / 18.5)
    assert two.efficiency == pytest.approx(6.0 / 18.5)
    assert two.limit == "all-reduce"


def test_strong_scaling_shares_the_rows_and_keeps_what_is_fixed():
    facts = step(fixed_seconds=2.0, reduced_bytes=0.0)
    four = predict(facts, Machines(4, Link(1.0)), 4, global_batch_size=64)
    assert four.global_batch_size == 64
    assert four.compute_seconds == 2.0 + 4.0 / 4
    assert four.speed_up == 6.0 / 3.0
    assert four.limit == "compute"
    # Of 65 rows one replica gets 17.
    four = predict(facts, Machines(4, Link(1.0)), 4, global_batch_size=65)
    assert four.compute_seconds == 2.0 + 4.0 * 17 / 64


def test_overlap_hides_as_much_as_the_backward_pass_is_long():
    # Two thirds of 6 s are the backward pass; half of it hides 2 of 12.5 s.
    two = predict(step(overlap=0.5), Machines(2, FAST), 2)
    assert two.exposed_seconds == pytest.approx(10.5)
    assert two.all_reduce_seconds == 12.5
    light = step(overlap=1.0, reduced_bytes=100.0)
    assert predict(light, Machines(2, FAST), 2).exposed_seconds == 0.0


def test_host_launches_the_work_of_its_machine():
    facts = step(
        reduced_bytes=0.0, host_seconds=4.0, host_seconds_per_replica=1.5
    )
    machines = Machines(4, Link(1.0), Link(1.0))
    four = predict(facts, machines, 4)
    assert four.host_seconds == 4.0 + 3 * 1.5
    assert (four.step_seconds, four.limit) == (8.5, "host")
    # The second machine has a host of its own.
    assert predict(facts, machines, 8).host_seconds == 8.5
    # Not told, each further replica costs what the first does.
    linear = step(host_seconds=4.0)
    assert predict(linear, machines, 4).host_seconds == 16.0


def test_input_is_shared_by_a_machine():
    facts = step(reduced_bytes=0.0, input_rows_per_second=16.0)
    machines = Machines(2, Link(1.0), Link(1.0))
    assert predict(facts, machines, 1).limit == "compute"  # 4 s beside 6.
    two = predict(facts, machines, 2)
    assert (two.input_seconds, two.limit) == (8.0, "input")
    assert two.examples_per_second == 16.0
    # Two machines have two pipelines.
    assert predict(facts, machines, 4).examples_per_second == 32.0


def test_grows_as_the_measured_host():
    """Stock Keras on 1, 2, 4, 8 logical CPU devices, milliseconds per step."""
    measured = {1: 11.6, 2: 21.8, 4: 41.5, 8: 84.9}
    facts = step(
        compute_seconds=1e-9,
        reduced_bytes=0.0,
        host_seconds=measured[1],
        host_seconds_per_replica=measured[2] - measured[1],
    )
    for count in (4, 8):
        predicted = predict(facts, Machines(8, FAST), count)
        assert predicted.step_seconds == pytest.approx(
            measured[count], rel=0.15
        )


def predictions(*speed_ups):
    """`Prediction`s of 1, 2, 4 … replicas with these speed-ups."""
    zeros = dict.fromkeys(
        [field for field in Prediction.__dataclass_fields__], 0
    )
    return [
        Prediction(**{**zeros, "replicas": 2**i, "speed_up": speed_up})
        for i, speed_up in enumerate(speed_ups)
    ]


def test_from_how_many_on_more_do_not_help():
    # From 4 to 8, four replicas bring 0.5: 0.125 each.
    row = predictions(1.0, 1.9, 3.0, 3.5)
    assert last_that_helps(row) is None
    assert last_that_helps(row, worth=0.2) == 4
    assert last_that_helps(predictions(1.0, 0.9, 0.95)) == 1
    # Two are no gain, but four are.
    assert last_that_helps(predictions(1.0, 0.9, 5.0)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 0},
        {"compute_seconds": 0},
        {"compute_seconds": math.nan},
        {"reduced_bytes": -1},
        {"overlap": 1.5},
        {"fixed_seconds": 7.0},
        {"input_rows_per_second": 0},
    ],
)
def test_bad_step(changes):
    (name,) = changes
    with pytest.raises(InputError, match=name):
        step(**changes)


def test_named_links_are_nine_tenths_of_the_specification():
    # 8 GT/s x 16 lanes x 128/130 bits: 15.75 GB/s.
    rate = link("pcie3").bytes_per_second
    assert rate == pytest.approx(0.9 * 15.75e9, rel=1e-3)
    assert link("25gbit").bytes_per_second == pytest.approx(0.9 * 25e9 / 8)
    assert link("nvlink4").bytes_per_second == pytest.approx(0.9 * 450e9)


def test_measured_rates_are_taken_as_they_are():
    assert link("11.2", latency_seconds=2e-6) == Link(11.2e9, 2e-6)


@pytest.mark.parametrize("text", ["pcie9", "", "-1", "0", "nan", "inf"])
def test_bad_link(text):
    with pytest.raises(InputError, match="--link_between"):
        link(text, flag="link_between")
