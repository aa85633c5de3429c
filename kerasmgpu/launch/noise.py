"""Lines of TensorFlow's that a launcher doesn't show; logs have them all.

Each worker writes some ten lines when it starts, and dozens when a step is
cancelled: for each operation that waits, and our own message again and again.
They would bury the line that says why. Errors and warnings are shown, but for
those that repeat such a line, or a missing GPU that isn't missed. Pure.
"""

import re
from collections.abc import Mapping

from kerasmgpu import stderr_filter

_DROPPED = re.compile(
    stderr_filter.written_by("I")
    + rb"|"
    + stderr_filter.OF_START
    # Of a step that was cancelled, or of a data set that has ended: what was
    # raised says the same.
    + rb"|"
    + stderr_filter.written_by("WE")
    + rb"\S*(?:local_rendezvous|rendezvous_mgr|base_rendezvous_mgr)\.cc:\d+\]"
    # What follows is our own line, which is shown.
    + rb"|"
    + stderr_filter.written_by("WE")
    + rb".*: kerasmgpu: (?:this )?worker "
)

_CONTINUED = re.compile(
    rb"The error could be from a previous operation\. Restart your program"
    rb"|Additional GRPC error information"
    rb"|:\{.*grpc_status"
    rb"|\s*\[\[\{\{node "
    rb"|\s*\[\[\S+\]\]"
)
"""Further lines of a message, if the line before was dropped."""


class Noise:
    """Recognises noise in the lines of one worker, in their order.

    Args:
        environ: Mapping, the worker's environment: `TF_CPP_MIN_LOG_LEVEL` 0 or
            1 asks for all lines.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._is_asked_for = stderr_filter.is_asked_for(environ)
        self._has_dropped = False

    def without(self, lines: list[str]) -> list[str]:
        """Returns the lines to show."""
        if self._is_asked_for:
            return lines
        return [line for line in lines if not self._is_noise(line.encode())]

    def _is_noise(self, line: bytes) -> bool:
        continued = self._has_dropped and _CONTINUED.match(line)
        self._has_dropped = bool(continued or _DROPPED.match(line))
        return self._has_dropped
