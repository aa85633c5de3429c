"""One thread at a time makes programs; those that are made run side by side.

Tuners and servers train and predict in threads. What makes a program shares state
of the process (counters, Python's garbage collector, which is off meanwhile,
TensorFlow's library of functions, the user's code that a trace calls) and of the
strategy (its variables by number, its layout): tracing, planning, writing and
creating variables take `making`. Steps wait for nothing but `alone`: what runs
eagerly on one device copies all variables of a strategy to the replicas, and would
undo a step of another thread.
"""

import threading
import time

from absl import logging

making = threading.RLock()
"""Lock of what makes programs and variables; `alone` is entered before it."""

_LONGEST_WAIT_SECONDS = 10.0
"""Longest wait of `alone` for steps, which may wait for the waiting thread: a
generator of batches can run a model."""

_SHORT_WAIT_SECONDS = 0.05
"""The same once that has happened, so that each batch doesn't take as long."""

_LONGEST_DELAY_SECONDS = 1.0
"""Longest time for which steps are held up by a thread that waits in `alone`."""


class _Steps:
    """Context in which a thread runs a step."""

    def __enter__(self) -> None:
        me = threading.get_ident()
        with _condition:
            end = time.monotonic() + _LONGEST_DELAY_SECONDS
            while me not in _state.steps and _state.owner != me:
                left = end - time.monotonic()
                if _state.owner is None and (not _state.waiting or left <= 0):
                    break
                _condition.wait(left if _state.owner is None else None)
            _state.steps[me] = _state.steps.get(me, 0) + 1

    def __exit__(self, *exception: object) -> None:
        me = threading.get_ident()
        with _condition:
            _state.steps[me] -= 1
            if not _state.steps[me]:
                del _state.steps[me]
                if _state.waiting:
                    _condition.notify_all()


class _Alone:
    """Context in which no other thread runs a step."""

    def __enter__(self) -> None:
        me = threading.get_ident()
        with _condition:
            seconds = _LONGEST_WAIT_SECONDS
            if _state.gave_up:
                seconds = _SHORT_WAIT_SECONDS
            end = time.monotonic() + seconds
            _state.waiting += 1
            try:
                while _state.owner not in (None, me):
                    _condition.wait()
                while _state.steps.keys() - {me}:
                    left = end - time.monotonic()
                    if left <= 0:
                        _give_up(seconds)
                        break
                    _condition.wait(left)
            finally:
                _state.waiting -= 1
            _state.owner = me
            _state.depth += 1

    def __exit__(self, *exception: object) -> None:
        with _condition:
            _state.depth -= 1
            if not _state.depth:
                _state.owner = None
            _condition.notify_all()


def _give_up(seconds: float) -> None:
    """Warns, the first time."""
    if not _state.gave_up:
        logging.warning(
            "kerasmgpu: an eager run changes variables while another thread has "
            "been in a step for %g s. Run models eagerly in one thread at a "
            "time.",
            seconds,
        )
    _state.gave_up = True


class _State:
    """Threads that run steps, with their depths; the one that is alone."""

    def __init__(self) -> None:
        self.steps: dict[int, int] = {}
        self.owner: int | None = None
        self.depth = 0
        self.waiting = 0
        self.gave_up = False


_condition = threading.Condition()
_state = _State()
stepping, alone = _Steps(), _Alone()
