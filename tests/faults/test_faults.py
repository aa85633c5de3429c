"""Faults are named; `python -m tests.faults` prints how soon, and runs all."""

import pytest

from tests.faults.faults import FAULTS, can_strike, strike

HANGS = ("data block", "callback sleeps", "skipped evaluation")
"""Happen in one job: it goes on behind the first two."""
ELSEWHERE = {"stopped", "killed", "data raise", "slow worker", "out of memory"}
"""Faults of `test_standing_still`, `test_losing_a_worker`, `test_throughput` and
`test_out_of_memory` in `tests/workers`."""


@pytest.mark.nightly(but=3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        HANGS,
        *((name,) for name in FAULTS if name not in {*HANGS, *ELSEWHERE}),
    ],
    ids=", ".join,
)
def test_faults_are_named(tmp_path, names):
    if not all(map(can_strike, names)):
        pytest.skip("needs root")
    outcomes = strike(names, tmp_path, hang_seconds=6)
    assert outcomes[-1].seconds is not None, outcomes[-1].log[-6000:]
    assert len(outcomes) == len(names)
