"""Signal handling; the effects of SIGTERM on our processes.

Schedulers send SIGTERM before they reclaim a machine. The first row that
applies decides:

| process                      | when             | effect of SIGTERM         |
|------------------------------|------------------|---------------------------|
| any, with `Checkpoint`       | during its `fit` | recorded: the callback    |
|                              |                  | saves after the step and  |
|                              |                  | exits with status 75      |
| a launcher                   | during its job   | recorded: all workers get |
|                              |                  | SIGTERM, then it exits    |
| a command with child         | always           | ends them and exits with  |
| processes (`verify`, `plan`) |                  | status 143                |
| a worker of a job            | once it joined   | ends at once, by default  |
| any other                    | always           | Python's and the          |
|                              |                  | program's own handlers    |

Each handler is restored when its time is over. Two processes can't import this
module: a worker's guard (`launch/guard.py`) forwards SIGTERM to the worker,
and the filter of standard error (`stderr_filter.py`) ignores it.
"""

import contextlib
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

    A context manager as well.

    Attributes:
        received: List of the signals, in the order of their arrival.
    """

    def __init__(
        self,
        numbers: Sequence[signal.Signals] = (signal.SIGTERM,),
        unless_ignored: bool = False,
    ) -> None:
        self._numbers = numbers
        self._unless_ignored = unless_ignored
        self._before: dict[signal.Signals, Any] = {}
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
        for number in self._numbers:
            ignored = signal.getsignal(number) is signal.SIG_IGN
            if not (ignored and self._unless_ignored):
                self._before[number] = signal.signal(number, self._record)
        return True

    def stop(self) -> None:
        """Restores the previous handlers; a second call has no effect.

        Python can't restore a handler that C code had installed; the signal
        then has its default effect.
        """
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler or signal.SIG_DFL)

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
        self.received.append(number)


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
