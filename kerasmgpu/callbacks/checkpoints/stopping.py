"""Ends a `fit` on SIGTERM, Ctrl-C and notices, once its state is saved.

| signal           | effect                                                  |
|------------------|---------------------------------------------------------|
| SIGTERM          | the step is completed, the state saved, and             |
|                  | `SystemExit` ends the process with status 75            |
| a notice         | the same as SIGTERM; see `notices.py`                   |
| Ctrl-C           | the same, with `KeyboardInterrupt`, which a program may |
|                  | catch; a script that doesn't ends without a traceback   |
| a second Ctrl-C  | ends a script at once, in the middle of a step, too; in |
|                  | a notebook it is a `KeyboardInterrupt` at once          |

A program with a handler of its own for SIGINT keeps it.
"""

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

import tensorflow as tf
from absl import logging

from kerasmgpu import signals
from kerasmgpu.callbacks.checkpoints.notices import Notice
from kerasmgpu.job import membership, workers
from kerasmgpu.job.exit_status import EXIT_PREEMPTED
from kerasmgpu.stores.places import Place

_NOTICE = (
    b"\nCheckpoint: interrupted: it saves after this step, then the run ends; "
    b"Ctrl-C again ends it at once\n"
)


class Stopping:
    """Records the signals that end a `fit`, and ends it.

    Args:
        notice: `Notice`, which has the effect of SIGTERM, or `None`.
    """

    def __init__(self, notice: Notice | None = None) -> None:
        self._notice = notice
        self._sigterm = signals.Recorder()
        self._interrupt: signals.Recorder | None = None

    def start(self) -> bool:
        """Starts to record; `False` outside the main thread, as `Recorder`."""
        if self._notice is not None:
            self._notice.start()
        self._interrupt = None
        is_main = self._sigterm.start()
        usual = signal.default_int_handler
        if is_main and signal.getsignal(signal.SIGINT) is usual:
            second = usual if _is_interactive() else signal.SIG_DFL
            self._interrupt = _Interrupt((signal.SIGINT,), False, 1, second)
            self._interrupt.start()
        return is_main

    def agreed(self, strategy: tf.distribute.Strategy) -> int:
        """Returns the signal that any worker has recorded, or 0; collective.

        The caller then saves, and calls `end`.
        """
        received = [n for one in self._recorders() for n in one.received]
        if self._notice is not None and self._notice.said:
            received.append(int(signal.SIGTERM))
        number = max(received, default=0)
        if workers.count(strategy) > 1:
            number = int(workers.gather(strategy, [number]).max())
        if number:
            self._forget()
        return number

    def end(self, number: int, folder: Place) -> NoReturn:
        """Ends the `fit`, whose state is in `folder`, for a signal.

        Raises:
            SystemExit: With status 75, for SIGTERM.
            KeyboardInterrupt: For SIGINT.
        """
        self._forget()  # Workers may get theirs after the first.
        self.stop()
        if number != signal.SIGINT:
            said = self._notice and self._notice.said
            logging.warning(
                "Checkpoint: saved in %s and ended by %s; the same command "
                "resumes it (exit status %d).",
                folder,
                f"a notice ({said})" if said else "SIGTERM",
                EXIT_PREEMPTED,
            )
            raise SystemExit(EXIT_PREEMPTED)
        logging.warning(
            "Checkpoint: saved in %s and ended by Ctrl-C; the same command "
            "resumes it.",
            folder,
        )
        error = KeyboardInterrupt(f"saved in {folder}")
        hook = functools.partial(_end_quietly, error, sys.excepthook)
        sys.excepthook = hook
        raise error

    def stop(self) -> None:
        """Restores the handlers; they get the signals that ended no `fit`."""
        if self._notice is not None:
            self._notice.stop()
        for recorder in self._recorders():
            recorder.stop()

    def _recorders(self) -> list[signals.Recorder]:
        found = [self._sigterm, self._interrupt]
        return [one for one in found if one is not None]

    def _forget(self) -> None:
        for recorder in self._recorders():
            recorder.received.clear()


class _Interrupt(signals.Recorder):
    """Records the first Ctrl-C, and says so."""

    def _record(self, number: int, frame: Any) -> None:
        super()._record(number, frame)
        if self.received:
            with contextlib.suppress(OSError):  # The terminal may be closed.
                # Python's own buffer may be what the signal has interrupted.
                os.write(2, _NOTICE)


def _is_interactive() -> bool:
    """Whether the process goes on after an exception, as in a notebook."""
    return bool(sys.flags.interactive) or hasattr(sys, "ps1")


def _end_quietly(
    saved: KeyboardInterrupt,
    show: Callable[..., Any],
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """Replaces `sys.excepthook`: omits the traceback of `saved`.

    What happened is already said in one line.
    """
    if error is not saved:
        show(kind, error, trace)
        return
    membership.leave(f"{kind.__name__}: {error}")
