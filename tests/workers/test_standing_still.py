"""One time-out says how long a worker may stand still: swap, a debugger, Ctrl-Z.

TensorFlow's own, of 5 s for the first worker and 10 s for others, would end the
job before.
"""

import os
import signal
import sys
import time

import pytest

from tests.launch.launching import finish, launcher, wait_until

TIMEOUT_SECONDS = 18
LESS = 11.0
"""TensorFlow's 5 s begin within 5 s; ours, up to 3 s before."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(signal, "SIGSTOP"), reason="needs POSIX signals"
    ),
]


def test_who_stands_still_for_less_goes_on_and_for_longer_is_named(tmp_path):
    def number(name):
        path = tmp_path / name
        return int(path.read_text() or 0) if path.exists() else 0

    def wait_for_progress():
        before = number("epoch-0")
        wait_until(lambda: number("epoch-0") > before + 1, seconds=90)

    module = "tests.workers.standing_still_program"
    command = [sys.executable, "-m", module, str(tmp_path)]
    flags = ("--num_workers=2", f"--timeout_seconds={TIMEOUT_SECONDS}")
    with launcher(os.getcwd(), "", *flags, command=command) as process:
        wait_for_progress()
        os.kill(number("pid-0"), signal.SIGSTOP)
        time.sleep(LESS)
        os.kill(number("pid-0"), signal.SIGCONT)
        wait_for_progress()
        os.kill(number("pid-1"), signal.SIGSTOP)
        start = time.monotonic()
        status, output = finish(process, seconds=90)
    assert status == 1
    assert time.monotonic() - start < 80
    told = f"is lost: no heartbeat for {TIMEOUT_SECONDS} s"
    assert f"launch: worker 1 on 127.0.0.1 {told}" in output
    # Who noticed says so in one line, apart from TensorFlow's own.
    assert output.count("absl:kerasmgpu: worker 1 (") == 1
    assert "Traceback" not in output
