"""Every row is used once per epoch, whoever reads it."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.workers.data_program import NUM_ROWS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Targets of each file, what both workers found, and what they said."""
    folder = tmp_path_factory.mktemp("data")
    targets = []
    for i, count in enumerate(NUM_ROWS):
        targets.append(1.0 + 10 * i + np.arange(count))
        lines = "".join(f"{target}\n" for target in targets[-1])
        (folder / f"{i}.txt").write_text(lines)
    command = [sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2"]
    command += ["--", sys.executable, "-m", "tests.workers.data_program"]
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = [
        json.loads((folder / f"losses-{i}.json").read_text()) for i in (0, 1)
    ]
    return targets, found, done.stdout + done.stderr


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
    targets, found, _ = job
    used = np.concatenate([targets[i] for i in files])
    for worker in found:
        np.testing.assert_allclose(worker[kind], [np.mean(used**2)] * 3, 1e-6)


def test_predictions_are_in_the_order_of_the_rows(job):
    targets, found, _ = job
    for worker in found:
        np.testing.assert_allclose(
            worker["predictions"], np.concatenate(targets)
        )


def test_dividing_files_is_said(job):
    assert "each of the 2 workers reads its own part" in job[2]
    assert "3 files, auto_shard_policy AUTO" in job[2]


def test_workers_that_do_not_sum_the_same_are_told(job):
    _, found, _ = job
    for number, (worker, sums) in enumerate(zip(found, (1, 3))):
        assert worker["other programs"].startswith(
            "All workers must run the same collectives. Received: 'add', whose "
            "collective number 1 differs between workers; on worker "
            f"{number} of 2 it is: Add of {sums} float32 between hosts."
        )
