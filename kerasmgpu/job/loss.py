"""The log line about a lost worker, and its parser for the launcher.

The launcher sees processes end, but not why: a hung worker ends last, after the
workers that noticed it. They print the line, and the launcher searches their
output for it. Imports no TensorFlow.
"""

import re
from collections.abc import Sequence

from kerasmgpu.errors import one_line
from kerasmgpu.job.cluster import Worker

OUT_OF_STEP = "out of step: "
"""Begins the reason of a worker that is there, but in other collectives."""

_IN_ANOTHER = "while other workers were in another collective"

_CONTINUED = "while others continued"

_LINE = re.compile(
    r"kerasmgpu: worker (\d+) \(\S+\) is "
    rf"(?:lost: |(?={OUT_OF_STEP}))(.*)\. This "
)


def line(
    worker: Worker, lost: int, reason: str, has_ended: bool = False
) -> str:
    """Returns the line that a worker prints about a lost worker.

    Args:
        reason: String, why it counts as lost.
        has_ended: Boolean, whether the printing worker was already ending.
    """
    reason = one_line(reason)
    if lost == worker.index:
        what = state(reason).replace(
            "lost:", "lost to the others, which end:", 1
        )
        return f"kerasmgpu: this worker ({lost}) is {what}. It can't continue."
    ends = "had ended" if has_ended else "can't continue"
    return (
        f"kerasmgpu: worker {lost} ({worker.addresses[lost]}) is "
        f"{state(reason)}. This worker ({worker.index}) {ends}."
    )


def parted_alone(place: str) -> str:
    """Returns the reason of a worker that alone noticed that it is out of step.

    TensorFlow has told it that its collective is not the others'.

    Args:
        place: String, where the worker was, such as `"in step 3 of epoch 1"`.
    """
    return (
        f"{OUT_OF_STEP}it was {place}, while other workers were in another "
        "collective. All workers must run the same steps, evaluations, "
        "predictions and callbacks"
    )


def ended_early(seconds: float) -> str:
    """Returns the reason of a worker that ended in order, `seconds` ago."""
    return (
        f"it ended {seconds:g} s ago {_CONTINUED}; all workers must run the "
        "same steps"
    )


def names_one(reason: str) -> bool:
    """Whether a reason doesn't tell where the other workers are."""
    return _IN_ANOTHER in reason or _CONTINUED in reason


def state(reason: str) -> str:
    """Puts `"lost: "` before a reason, unless it begins with `OUT_OF_STEP`."""
    return reason if reason.startswith(OUT_OF_STEP) else f"lost: {reason}"


def lost_in(lines: Sequence[str]) -> tuple[int, str] | None:
    """Parses the lost worker's index and the reason from a worker's output.

    Returns `None` if no line has them.
    """
    for text in lines:
        if match := _LINE.search(text):
            return int(match[1]), match[2]
    return None
