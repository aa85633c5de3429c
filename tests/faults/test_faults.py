"""Faults are named; `python -m tests.faults` prints how soon, and runs all."""

import pytest

from tests.faults.faults import FAULTS, can_strike, strike

QUICK = {"NaN in layer 7"}
ELSEWHERE = {"killed", "slow worker", "out of memory"}
"""Faults of `test_losing_a_worker`, `test_throughput` and `test_out_of_memory` in
`tests/workers`."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in FAULTS
        if name not in ELSEWHERE
    ],
)
def test_the_fault_is_named(tmp_path, name):
    if not can_strike(name):
        pytest.skip("needs root")
    outcome = strike(name, tmp_path, hang_seconds=6)
    assert outcome.seconds is not None, outcome.log[-6000:]
