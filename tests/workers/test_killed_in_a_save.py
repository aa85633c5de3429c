"""One fault of `python -m tests.chaos`, which strikes many jobs."""

import random

import pytest

from tests.chaos import campaign, faults
from tests.workers.quiet_program import EPOCHS


@pytest.mark.nightly
@pytest.mark.job_case(2, 1, "quiet")
def test_a_worker_killed_in_a_save_changes_nothing(job, tmp_path):
    outcome = campaign.strike(
        faults.kill_in_a_save,
        tmp_path / "job",
        job.workers[0],
        random.Random(0),
        EPOCHS,
    )
    assert outcome.status == 0 and outcome.starts >= 2
    assert outcome.same_weights
