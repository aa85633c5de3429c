"""Every other worker notices, and says which worker is gone."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from kerasmgpu.job import ports
from kerasmgpu.job.cluster import Worker


@pytest.mark.nightly(but=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "end, reason",
    [
        ("SIGKILL", "its process has ended"),
        ("error", r"\w+Error: .*worker 1 can't read its data"),
    ],
)
def test_the_survivor_raises_and_names_the_lost_worker(end, reason):
    addresses = tuple(f"127.0.0.1:{port}" for port in ports.free(2))
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.workers.losing_program", end],
            env={**os.environ, "TF_CONFIG": Worker(addresses, i).tf_config()},
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    try:
        start = time.perf_counter()
        error = processes[0].communicate(timeout=150)[1]
        assert processes[0].returncode == 1
        lost = re.escape(f"worker 1 ({addresses[1]}) is lost: ")
        assert re.search(lost + reason, error), error
        # But for the one that an error of a data set holds, in its line.
        assert "\nTraceback" not in f"\n{error}"
        assert time.perf_counter() - start < 140
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
