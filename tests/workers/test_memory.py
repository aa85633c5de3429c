"""A replica holds little more than one device does."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

_PROGRAM = "tests.workers.memory_program"
# With glibc's default, freed blocks stay in the arenas of threads: what is
# measured then differs by a third from run to run, of plain Keras too.
_ENVIRON = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "262144"}


def grown(*command):
    """Returns the growths of the processes of a command, in MiB, by kind."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env=_ENVIRON,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = {}
    for kind, size in re.findall(r"(\w+) grown by (\d+) MiB", done.stdout):
        found.setdefault(kind, []).append(int(size))
    return found


@pytest.fixture(scope="module")
def workers():
    """Growths of three workers, by kind."""
    launch = ("kerasmgpu.launch", "--num_workers=3", "--", "-m")
    found = grown(*launch, _PROGRAM, "sharded", "workers")
    assert [len(sizes) for sizes in found.values()] == [3, 3]
    return found


@pytest.fixture(scope="module")
def alone():
    """Growths of one process, by kind."""
    return grown(_PROGRAM, "plain", "devices")


@pytest.mark.nightly
def test_workers_and_replicas_hold_at_most_1_3_times_one_device(workers, alone):
    # Of 261 MiB on one device; two devices of one process share the memory.
    most = max(alone["devices"] + workers["workers"])
    assert most <= 1.3 * alone["plain"][0], (alone, workers)


@pytest.mark.nightly
def test_weights_that_are_sharded_over_workers(workers, alone):
    # A third of 261 MiB, and two weights of 5 MiB; and TensorFlow's buffers.
    assert max(workers["sharded"]) <= 0.5 * alone["plain"][0], (alone, workers)
