"""One job of the campaign; `python -m tests.chaos` runs many."""

import random

import pytest

from tests.chaos import campaign, faults


@pytest.mark.slow
def test_a_worker_killed_in_a_save_changes_nothing(tmp_path):
    expected = campaign.quiet_run(tmp_path)
    outcome = campaign.strike(
        faults.kill_in_a_save, tmp_path / "job", expected, random.Random(0)
    )
    assert outcome.status == 0 and outcome.starts >= 2
    assert outcome.same_weights
