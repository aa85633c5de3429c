"""What takes long at the exit of the process, behind other exit handlers.

A worker of a job tells the others in an exit handler that it has ended; if it is
late, they count it as hung (`job/membership.py`). Python joins threads that aren't
daemons before all exit handlers, and runs these in reverse order. So threads that
the exit waits for are daemons, and are waited for in one handler, which is
registered before a worker joins its job. Imports no TensorFlow.
"""

import atexit
import contextlib
import functools
from collections.abc import Callable

_waits: list[Callable[[], None]] = []


@functools.cache
def install() -> None:
    """Registers the exit handler; those registered later run before it."""
    atexit.register(_run)


def add(wait: Callable[[], None]) -> None:
    """Calls a function at the exit, before those that were added earlier."""
    install()
    _waits.append(wait)


def remove(wait: Callable[[], None]) -> None:
    """Doesn't call a function at the exit that was added, if it still would."""
    with contextlib.suppress(ValueError):
        _waits.remove(wait)


def _run() -> None:
    with contextlib.ExitStack() as stack:  # It goes on if one raises.
        for wait in _waits:
            stack.callback(wait)
