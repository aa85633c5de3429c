"""Throughput arithmetic under a clock that the test sets."""

import math

import pytest

from kerasmgpu.callbacks.stopwatch import Stopwatch, compare_workers


def run(stopwatch, times, steps=1, traced=()):
    for number, (start, end) in enumerate(times):
        stopwatch.add(start, end, steps, traced=number in traced)


def test_every_figure_by_hand():
    stopwatch = Stopwatch()
    # The first step (10 s) compiles. Then steps of 2, 2, 2 and 4 seconds,
    # no gaps, and the devices are done as the last one returns.
    run(stopwatch, [(0, 10), (10, 12), (12, 14), (14, 16), (16, 20)])
    figures = stopwatch.figures([(60, 1.0)] * 5, num_replicas=3)
    assert figures == {
        "examples_per_second": 24.0,  # 240 rows in 10 s.
        "examples_per_second_per_replica": 8.0,
        "steps_per_second": 0.4,  # 4 in 10 s.
        "step_seconds_median": 2.0,
        "step_seconds_p95": pytest.approx(3.7),  # 2 + 2 * (2.85 - 2).
        "input_wait_share": 0.4,  # 4 s of 10 s.
    }


def test_incomplete_last_batch_counts_its_rows():
    stopwatch = Stopwatch()
    run(stopwatch, [(0, 1), (1, 2), (2, 3)])
    batches = [(8, 0), (8, 0), (8, 0)]
    assert stopwatch.figures(batches, 1)["examples_per_second"] == 8
    stopwatch.new_epoch()
    run(stopwatch, [(3, 4), (4, 5), (5, 6)])
    # Three rows make a size that was not met before: it compiles.
    batches = [(8, 0), (8, 0), (3, 0)]
    assert stopwatch.figures(batches, 1)["examples_per_second"] == 8
    stopwatch.new_epoch()
    run(stopwatch, [(6, 7), (7, 8), (8, 9)])
    figures = stopwatch.figures(batches, 1)
    assert figures["examples_per_second"] == pytest.approx(19 / 3)


def test_steps_share_the_time_of_their_execution():
    stopwatch = Stopwatch()
    # Four steps an execution; data for 4 + 4 + 4 + 2.
    run(stopwatch, [(0, 9), (9, 13), (13, 17), (17, 18)], steps=4)
    figures = stopwatch.figures([(10, 0.25)] * 14, num_replicas=2)
    assert figures["examples_per_second"] == pytest.approx(100 / 9)
    assert figures["steps_per_second"] == pytest.approx(10 / 9)
    assert figures["step_seconds_median"] == 1.0
    assert figures["input_wait_share"] == pytest.approx(2.5 / 9)


def test_an_execution_that_traces_is_left_out():
    stopwatch = Stopwatch()
    run(stopwatch, [(0, 5), (5, 6), (6, 9), (9, 10)], traced=[2])
    assert stopwatch.figures([(4, 0)] * 4, 1)["examples_per_second"] == 4


def test_the_first_execution_is_left_out_once_per_fit():
    stopwatch = Stopwatch()
    run(stopwatch, [(0, 5), (5, 6)])
    stopwatch.figures([(4, 0)] * 2, 1)
    stopwatch.new_epoch()
    run(stopwatch, [(6, 8), (8, 10)])
    assert stopwatch.figures([(4, 0)] * 2, 1)["examples_per_second"] == 2
    stopwatch.reset()
    run(stopwatch, [(20, 28), (28, 29)])
    assert stopwatch.figures([(4, 0)] * 2, 1)["examples_per_second"] == 4


def test_gaps_count_but_a_checkpoint_does_not():
    stopwatch = Stopwatch()
    # Gaps of 1, 1, 1 and 50 seconds between steps of one second.
    times = [(0, 1), (2, 3), (4, 5), (6, 7), (57, 58)]
    run(stopwatch, times)
    figures = stopwatch.figures([(7, 0)] * 5, 1)
    # 1 + 1, 1 + 1, 1 + 1 (of 50), 1: seven seconds for 28 rows.
    assert figures["examples_per_second"] == 4


def test_work_that_devices_still_had_to_do_counts():
    stopwatch = Stopwatch()
    run(stopwatch, [(0, 1), (1, 2), (2, 3)])
    stopwatch.finish(backlog=6.0)
    assert stopwatch.finished
    assert stopwatch.figures([(4, 0)] * 3, 1)["examples_per_second"] == 1


@pytest.mark.parametrize("executions", [0, 1])
def test_an_epoch_of_nothing_but_compilation_is_nan(executions):
    stopwatch = Stopwatch()
    run(stopwatch, [(0, 1)][:executions])
    figures = stopwatch.figures([(4, 0)] * executions, 1)
    assert len(figures) == 6
    assert all(math.isnan(value) for value in figures.values())


def test_counts_steps_until_the_epoch_is_new():
    stopwatch = Stopwatch()
    run(stopwatch, [(0, 1), (1, 2)], steps=5)
    assert stopwatch.steps == 10
    stopwatch.new_epoch()
    assert stopwatch.steps == 0 and not stopwatch.finished


def test_the_slowest_worker_is_named():
    assert compare_workers([0.25, 0.75, 0.5]) == {
        "slowest_worker": 1,
        "slowest_worker_step_seconds": 0.75,
        "fastest_worker_step_seconds": 0.25,
    }


def test_the_pace_is_that_of_the_last_seconds_without_tracing():
    stopwatch = Stopwatch()
    assert stopwatch.pace(10) is None
    stopwatch.add(0, 50, steps=2, traced=True)
    assert stopwatch.pace(10) is None
    for start in (50, 54, 58):
        stopwatch.add(start, start + 3, steps=2, traced=False)
    # From 50 to 61, gaps included; the last six seconds begin within 54 to 57.
    assert stopwatch.pace(100) == 11 / 6
    assert stopwatch.pace(6) == 7 / 4
    stopwatch.new_epoch()
    assert stopwatch.pace(10) is None
