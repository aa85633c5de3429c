"""Signal handling; the effects of SIGTERM on our processes.

Schedulers send SIGTERM before they reclaim a machine. The first row that
applies decides:

| process                      | when             | effect of SIGTERM         |
|------------------------------|------------------|---------------------------|
| any, with `Checkpoint`       | during its `fit` | recorded: the callback    |
|                              |                  | saves after the step and  |
|                              |                  | exits with status 75      |
|                              |                  | (Ctrl-C: `stopping.py`)   |
| a launcher                   | during its job   | recorded: all workers get |
|                              |                  | SIGTERM, then it exits    |
| a command with child         | always           | ends them and exits with  |
| processes (`verify`, `plan`) |                  | status 143                |
| a worker of a job            | once it joined   | ends at once, by default  |
| any other                    | always           | Python's and the          |
|                              |                  | program's own handlers    |

Each handler is restored when its time is over, and gets a signal that was
recorded too late for the one that should have acted on it. Two processes can't
import this module: a worker's guard (`launch/guard.py`) forwards SIGTERM to the
worker, and the filter of standard error (`stderr_filter.py`) ignores it.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any

EXIT_TERMINATED = 128 + signal.SIGTERM
"""Exit status of a command that SIGTERM has ended, as a shell reports it."""


class Recorder:
    """Records signals from `start` to `stop`; they have no other effect.

    Who acts on a signal takes it out of `received`. `stop` sends the others
    again, to the handlers before: none is lost. A context manager as well.

    Args:
        numbers: Sequence of the signals.
        unless_ignored: Boolean, whether a signal that is ignored stays so.
        at_most: Integer, how many signals of a number are recorded. Any more
            have the effect of `further`. Defaults to `None`: no bound.
        further: Handler of those. Default: the system's default effect.

    Attributes:
        received: List of the signals, in the order of their arrival.
    """

    def __init__(
        self,
        numbers: Sequence[signal.Signals] = (signal.SIGTERM,),
        unless_ignored: bool = False,
        at_most: int | None = None,
        further: Any = signal.SIG_DFL,
    ) -> None:
        self._numbers = numbers
        self._unless_ignored = unless_ignored
        self._at_most = at_most
        self._further = further
        self._before: dict[signal.Signals, Any] = {}
        self._process = 0
        self.received: list[int] = []

    def start(self) -> bool:
        """Installs the handlers.

        Returns:
            Boolean, whether this is the main thread; Python installs no
            handlers in any other, and none is installed then.
        """
        self.received = []
        if threading.current_thread() is not threading.main_thread():
            return False
        self._process = os.getpid()
        for number in self._numbers:
            ignored = signal.getsignal(number) is signal.SIG_IGN
            if not (ignored and self._unless_ignored):
                self._before[number] = signal.signal(number, self._record)
        return True

    def stop(self) -> None:
        """Restores the previous handlers; a second call has no effect.

        They get the signals that are still in `received`, each number once.
        Python can't restore a handler that C code had installed; the signal
        then has its default effect.
        """
        ours = set(self._before)
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler or signal.SIG_DFL)
        for one in dict.fromkeys(self.received):
            self.received = [n for n in self.received if n != one]
            if one in ours:
                signal.raise_signal(one)

    def __enter__(self) -> "Recorder":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _record(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A fork has inherited this handler, and nobody reads its list.
            signal.signal(number, self._before[signal.Signals(number)])
            signal.raise_signal(number)
            return
        self.received.append(number)
        if self.received.count(number) == self._at_most:
            # The system's default effect doesn't wait for the end of a step.
            signal.signal(number, self._further)


def exit_on_sigterm() -> None:
    """Makes SIGTERM raise `SystemExit`, so that `finally` ends child processes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))


def end_on_sigterm() -> None:
    """Makes SIGTERM end this process, if Python has no handler of it.

    TensorFlow's engine has installed one in C++, which catches SIGTERM and
    lets the process continue. Does nothing outside the main thread.
    """
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # Not in the main thread.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
