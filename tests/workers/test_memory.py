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
    """Returns the growth of each process of a command, in MiB."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env=_ENVIRON,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [int(n) for n in re.findall(r"grown by (\d+) MiB", done.stdout)]


def _of_four_workers(kind):
    return grown(
        "kerasmgpu.launch", "--num_workers=4", "--", "-m", _PROGRAM, kind
    )


@pytest.fixture(scope="module")
def replicated():
    found = _of_four_workers("workers")
    assert len(found) == 4
    return found


def test_workers_and_replicas_hold_at_most_1_3_times_one_device(replicated):
    (plain,) = grown(_PROGRAM, "plain")
    (devices,) = grown(_PROGRAM, "devices")
    # Of 437 MiB on one device; two devices of one process share the memory.
    assert max(devices, *replicated) <= 1.3 * plain, (
        plain,
        devices,
        replicated,
    )


def test_weights_that_are_sharded_over_workers(replicated):
    sharded = _of_four_workers("sharded")
    # A quarter of 448 MiB, and two weights of 9 MiB; and TensorFlow's buffers.
    assert max(sharded) <= 0.5 * min(replicated), (replicated, sharded)
