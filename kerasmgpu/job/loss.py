"""How a worker says which one is lost, and how the launcher reads it. Pure.

The launcher sees processes end, and not why: a worker that stands still ends
last, after all that noticed. They print the line below, and it looks for it.
"""

import re

_LINE = re.compile(r"kerasmgpu: worker (\d+) \(\S+\) is gone: (.*)\. This ")


def line(worker, lost, reason, has_ended=False):
    """What a worker prints when it finds that one is lost.

    Args:
        worker: `cluster.Worker` that prints it.
        lost: Integer, number of the worker that is lost.
        reason: String, why it is taken for lost.
        has_ended: Boolean, whether the one that prints it was at its end.

    Returns:
        String, one line.
    """
    reason = " ".join(reason.split())
    if lost == worker.index:
        return (
            f"kerasmgpu: this worker ({lost}) is gone to the others, which "
            f"end: {reason}. It can't go on."
        )
    address = worker.addresses[lost]
    if has_ended:
        return (
            f"kerasmgpu: worker {lost} ({address}) is gone: {reason}. "
            f"This worker ({worker.index}) had ended."
        )
    return (
        f"kerasmgpu: worker {lost} ({address}) is gone: {reason}. "
        f"This worker ({worker.index}) can't go on."
    )


def lost_in(lines):
    """Finds that line in what a worker printed.

    Args:
        lines: Sequence of strings.

    Returns:
        The number of the lost worker and the reason; `None` without the line.
    """
    for text in lines:
        if match := _LINE.search(text):
            return int(match[1]), match[2]
    return None
