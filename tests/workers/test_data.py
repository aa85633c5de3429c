"""Every row is used once per epoch, whoever reads it."""

import numpy as np
import pytest

from tests.workers.data_program import TARGETS

pytestmark = [pytest.mark.slow, pytest.mark.job_case(2, 1, "data")]


@pytest.mark.parametrize(
    "kind, files",
    [
        ("files", [0, 1, 2]),
        ("files of known length", [0, 1, 2]),
        ("one file", [0]),
        ("files read by all", [0, 1, 2]),
        ("distributed by hand", [0, 1, 2]),
        ("own shards", [0, 1]),
    ],
)
def test_every_row_counts_once(job, kind, files):
    used = np.concatenate([TARGETS[i] for i in files])
    for worker in job.workers:
        np.testing.assert_allclose(worker[kind], [np.mean(used**2)] * 3, 1e-6)


def test_predictions_are_in_the_order_of_the_rows(job):
    for worker in job.workers:
        np.testing.assert_allclose(
            worker["predictions"], np.concatenate(TARGETS)
        )


def test_dividing_files_is_said(job):
    said = "\n".join(job.lines)
    assert "each of the 2 workers reads its own part" in said
    assert "3 files, auto_shard_policy AUTO" in said


def test_workers_that_do_not_sum_the_same_are_told(job):
    for number, (worker, sums) in enumerate(zip(job.workers, (1, 3))):
        assert worker["other programs"].startswith(
            "All workers must run the same collectives. Received: 'add', whose "
            "collective number 1 differs between workers; on worker "
            f"{number} of 2 it is: Add of {sums} float32 between hosts."
        )
