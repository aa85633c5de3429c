"""Waits for what other processes do."""

import os
import pathlib
import time


def is_gone(process_id):
    """Whether a process has ended, collected or not."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    # Killed but not yet collected by whoever adopted it.
    stat = pathlib.Path(f"/proc/{process_id}/stat")
    return (
        stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"
    )


def wait_for(condition, seconds=30):
    """Returns once `condition()` is true; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
