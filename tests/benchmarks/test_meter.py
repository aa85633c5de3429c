"""What a process used, where it is known beforehand."""

import time

import numpy as np
import pytest

from benchmarks.meter import EpochMeter, peak_memory_mb


def test_sleep_costs_time_and_work_costs_both():
    meter = EpochMeter()
    meter.begin()
    time.sleep(0.2)
    slept = meter.end()
    meter.begin()
    begin = time.process_time()
    while time.process_time() < begin + 0.2:
        pass
    worked = meter.end()
    assert 0.2 <= slept.wall_seconds < 5
    assert slept.cpu_seconds < 0.1
    assert 0.2 <= worked.cpu_seconds < 0.5
    # Only the second epoch, not both.
    assert worked.cpu_seconds <= worked.wall_seconds + 0.1


@pytest.mark.slow
def test_peak_memory_stays_when_memory_is_given_back():
    before = peak_memory_mb()
    block = np.ones(int((before + 40) * 1e6 / 8))
    after = peak_memory_mb()
    del block
    # In megabytes: at least the block, and what Python has besides.
    assert after > before + 40
    assert peak_memory_mb() >= after
