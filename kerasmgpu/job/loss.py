"""The log line about a lost worker, and its parser for the launcher.

The launcher sees processes end, but not why: a hung worker ends last, after the
workers that noticed it. They print the line, and the launcher searches their
output for it. Imports no TensorFlow.
"""

import re
from collections.abc import Sequence

from kerasmgpu.job.cluster import Worker

_LINE = re.compile(r"kerasmgpu: worker (\d+) \(\S+\) is lost: (.*)\. This ")


def line(
    worker: Worker, lost: int, reason: str, has_ended: bool = False
) -> str:
    """Returns the line that a worker prints about a lost worker.

    Args:
        worker: `cluster.Worker` that prints it.
        lost: Integer, index of the lost worker.
        reason: String, why it counts as lost.
        has_ended: Boolean, whether the printing worker was already ending.

    Returns:
        String, one line.
    """
    reason = " ".join(reason.split())
    if lost == worker.index:
        return (
            f"kerasmgpu: this worker ({lost}) is lost to the others, which "
            f"end: {reason}. It can't continue."
        )
    address = worker.addresses[lost]
    if has_ended:
        return (
            f"kerasmgpu: worker {lost} ({address}) is lost: {reason}. "
            f"This worker ({worker.index}) had ended."
        )
    return (
        f"kerasmgpu: worker {lost} ({address}) is lost: {reason}. "
        f"This worker ({worker.index}) can't continue."
    )


def lost_in(lines: Sequence[str]) -> tuple[int, str] | None:
    """Parses the lost worker and the reason from a worker's output.

    Args:
        lines: Sequence of strings.

    Returns:
        The lost worker's index and the reason; `None` without such a line.
    """
    for text in lines:
        if match := _LINE.search(text):
            return int(match[1]), match[2]
    return None
