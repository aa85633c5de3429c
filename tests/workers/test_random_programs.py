"""Random programs do on the replicas of several workers what one device does."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_two_workers_of_two_devices_do_what_one_device_does():
    command = [sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2"]
    command += ["--", "-m", "tests.workers.random_program", "2", "11", "30"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    output = done.stdout[-5000:] + done.stderr[-3000:]
    assert done.returncode == 0, output
    assert output.count(" programs were run, 0 failed.") >= 2
