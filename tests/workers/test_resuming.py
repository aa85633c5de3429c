"""Jobs whose weights are sharded resume from a checkpoint."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.callbacks.checkpoints import runs
from tests.strategies.sharded import mirrored

pytestmark = pytest.mark.slow


def launch(kind, folder):
    """Runs `resume_program` on two workers; returns what it prints."""
    command = [sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2"]
    command += ["--", "-m", "tests.workers.resume_program", kind, str(folder)]
    done = subprocess.run(
        command,
        # See `test_memory.py`.
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "262144"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def require_same(job):
    for (expected, expected_history), (state, history) in job.workers:
        # A job saves the metrics of an interrupted epoch as one sum.
        assert history.keys() == expected_history.keys()
        for name, values in history.items():
            assert values == pytest.approx(expected_history[name], rel=1e-6)
        for array, other in zip(state, expected, strict=True):
            np.testing.assert_array_equal(array, other)


def require_restored(directory, expected, strategy):
    """Raises unless the newest checkpoint has the expected state."""
    state = runs.restored(runs.build(strategy, "adam"), directory)
    for array, other in zip(state, expected, strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.job_case(2, 1, "resume")
def test_in_the_middle_of_an_epoch_bit_for_bit(job):
    require_same(job)


@pytest.mark.job_case(2, 1, "resume sharded")
def test_workers_write_their_own_parts(job):
    """And other numbers of replicas read them, bit for bit."""
    require_same(job)
    newest = max((job.files / "cut").iterdir())
    sizes = [(newest / f"part-0000{n}.npz").stat().st_size for n in (0, 1)]
    assert min(sizes) > 0.3 * max(sizes), sizes
    expected = job.workers[0][0][0]
    for strategy in (None, mirrored(3, "weights")):
        require_restored(newest.parent, expected, strategy)


@pytest.mark.nightly
@pytest.mark.job_case(2, 2, "resume mesh")
def test_workers_change_their_mesh(job):
    for expected, state in job.workers:
        for array, other in zip(state, expected, strict=True):
            np.testing.assert_array_equal(array, other)
    require_restored(job.files, expected, None)


@pytest.mark.nightly
@pytest.mark.job_case(2, 1, "resume unshared")
def test_all_workers_say_that_a_part_is_missing(job):
    first, second = job.workers
    for refused, _, _ in job.workers:
        assert "and workers 1, which don't see the files of worker 0" in refused
    assert "by worker 1, which says why" in first[1]
    assert "No space left on device" in second[1]
    names = [entry.name for entry in (job.files / "shared").iterdir()]
    assert names == [".tmp-checkpoint-000001-000000000"]
    # By default the first worker then writes all.
    assert (first[2], second[2]) == (["checkpoint-000001-000000000.npz"], [])
    assert any("is not shared with workers 1" in line for line in job.lines)


@pytest.mark.nightly
def test_no_worker_holds_the_whole_checkpoint(tmp_path):
    launch("save", tmp_path)
    (file,) = tmp_path.iterdir()
    mebibytes = file.stat().st_size / 2**20
    assert mebibytes > 330
    printed = launch("resume", tmp_path)
    grown = [int(n) for n in re.findall(r"grown by (\d+) MiB", printed)]
    assert len(grown) == 2
    # Half of the state, 168 MiB, the largest variable, 9 MiB, and TensorFlow's
    # buffers. A worker that held the file, too, would grow by at least 500.
    assert max(grown) < 1.4 * mebibytes, (grown, mebibytes)
