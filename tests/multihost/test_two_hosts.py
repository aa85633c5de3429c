"""Training across two hosts, and what happens when the link is cut."""

import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from benchmarks.exactness.registry import cases
from tests.chaos import program as chaos_program
from tests.chaos.program import NUM_STEPS
from tests.multihost import hosts
from tests.workers import shared_job
from tests.workers.test_parity import compare

CASES = cases("parity")

REASON = hosts.why_not()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(REASON), reason=REASON or "none"),
]

CASE = "batch normalisation"
TIMEOUT_SECONDS = 4


def launch(rank, *program, flags=()):
    """Starts our launcher on one of the hosts."""
    command = [sys.executable, "-m", "kerasmgpu.launch"]
    command += [f"--hosts={hosts.ADDRESSES[0]}:1,{hosts.ADDRESSES[1]}:1"]
    command += [f"--rank={rank}", f"--timeout_seconds={TIMEOUT_SECONDS}"]
    command += [*flags, "--", sys.executable, "-m", *program]
    return hosts.start(
        rank,
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(autouse=True)
def two_hosts():
    with hosts.two_hosts():
        yield


@pytest.fixture
def started():
    """List of launchers to end in any case."""
    launchers = []
    yield launchers
    for launcher in launchers:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()


def test_two_hosts_follow_one_device(tmp_path, started, on_one_device):
    program = ["tests.workers.shared_program", str(tmp_path), "1"]
    program += [f"parity {CASE}"]
    started += [launch(rank, *program) for rank in (0, 1)]
    for launcher in started:
        output = launcher.communicate(timeout=120)[0]
        assert launcher.returncode == 0, output[-3000:]
    workers = shared_job.returned(tmp_path, 0, 2)
    compare(CASES[CASE], on_one_device(CASES[CASE]), workers)


def test_a_cut_link_ends_both_sides_in_time(tmp_path, started):
    mark = tmp_path / "training"
    program = ["tests.multihost.long_program", str(mark)]
    started += [launch(rank, *program) for rank in (0, 1)]
    deadline = time.monotonic() + 90
    while not mark.exists():
        assert time.monotonic() < deadline, "training never began"
        time.sleep(0.1)
    hosts.cut_the_cable()
    cut = time.monotonic()
    for rank, launcher in enumerate(started):
        output = launcher.communicate(timeout=60)[0]
        assert launcher.returncode != 0
        # Workers and launchers watch one another; whoever is first says so.
        other = re.escape(hosts.ADDRESSES[1 - rank])
        said = rf"{other}\b.* no heartbeat for {TIMEOUT_SECONDS} s"
        assert re.search(said, output), output[-3000:]
    assert time.monotonic() - cut < 45


def test_the_host_that_remains_goes_on_alone(tmp_path, started):
    """From the last checkpoint, at the same global batch."""
    flags = ["--max_restarts=2", "--min_workers=1", "--restart_wait_seconds=2"]
    place = tmp_path / "job"
    place.mkdir()
    program = ["tests.chaos.program", str(place), str(place / "checkpoints")]
    started += [launch(rank, *program, flags=flags) for rank in (0, 1)]
    deadline = time.monotonic() + 120
    while steps(place) < NUM_STEPS // 3:
        assert time.monotonic() < deadline, "training never got so far"
        time.sleep(0.1)
    hosts.cut_the_cable()
    output = started[0].communicate(timeout=120)[0]
    assert started[0].returncode == 0, output[-3000:]
    assert "resuming from" in output
    assert started[1].wait(timeout=60) != 0
    alone = chaos_program.main(tmp_path, tmp_path / "alone")
    with np.load(place / "weights.npz") as arrays:
        for name, expected in zip(arrays.files, alone, strict=True):
            np.testing.assert_allclose(arrays[name], expected, 1e-4, 1e-5)


def steps(place):
    """Steps that a job's program has made."""
    path = place / "steps"
    return int(path.read_text() or 0) if path.exists() else 0
