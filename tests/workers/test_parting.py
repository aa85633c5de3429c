"""Workers that do different things are told so, without a callback."""

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SAME = "All workers must run the same steps"
WAYS = {
    "shorter": (
        "worker 1 is at the end of epoch 1, after 4 steps, worker 0 is in step "
        rf"5 of epoch 1\. {SAME}.* the same number of batches"
    ),
    "predict": (
        r"is out of step: it was in .*callback Users\.on_epoch_end.*, while "
        rf"other workers were in another collective\. {SAME}"
    ),
    "stop": (
        r"worker 1 .* is lost: it ended 6 s ago while others continued; "
        rf"{SAME.lower()}\. This worker \(0\) can't continue: it is in .*"
        r"epoch 4\."
    ),
}


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("way", WAYS)
def test_the_worker_and_what_it_does_are_named(way):
    command = [sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2"]
    command += ["--timeout_seconds=6", "--exit_wait_seconds=60", "--"]
    command += ["-m", "tests.workers.parting_program", way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said[-3000:]
    assert re.search(WAYS[way], said), said[-3000:]
