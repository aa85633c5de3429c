"""Adds up what the thread of a `fit` spends its time on.

Every moment of a `fit` is of one kind: that of the innermost `within`, or else
of the last `switch`. So the kinds add up to the wall time. Kinds are texts,
which the files of a run have, too.
"""

import collections
import contextlib
import threading
import time
from collections.abc import Iterator

INPUT = "waiting for input"
STEPS = "steps"
COMPUTATION = "computation"
COMMUNICATION = "communication, waiting for other workers"
TRACING = "tracing and compilation"
VALIDATION = "validation"
CHECKPOINTS = "checkpoints"
OTHER = "other"
CALLBACK = "callback "
"""Kinds: `STEPS` are executions of the step, which callers divide further; a
callback's kind begins with `CALLBACK`, and its name follows."""

BETWEEN_STEPS = (COMPUTATION, INPUT)
"""Kinds while an epoch's steps run, but for its steps."""


class FitClock:
    """The time of one `fit`, by kinds; of one thread.

    Attributes:
        thread: Integer, identifier of the thread.
        kind: String, the kind of the work that is done now.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        # A `fit` begins by making the iterator of its data.
        self.kind, self._since = INPUT, time.perf_counter()
        self._seconds: dict[str, float] = collections.defaultdict(float)

    def switch(self, kind: str, now: float | None = None) -> str:
        """Begins a kind of work; returns the one that it ends.

        Args:
            now: Float, `time.perf_counter()`, if the caller knows it.
        """
        if now is None:
            now = time.perf_counter()
        self._seconds[self.kind] += now - self._since
        before, self.kind, self._since = self.kind, kind, now
        return before

    def rename(self, kind: str) -> None:
        """Changes the kind of the work since the last switch."""
        self.kind = kind

    @contextlib.contextmanager
    def within(self, kind: str) -> Iterator[None]:
        """Returns a context, within which the work is of a kind."""
        before = self.switch(kind)
        try:
            yield
        finally:
            self.switch(before)

    def so_far(self) -> dict[str, float]:
        """Returns the seconds of each kind since the `fit` began."""
        self.switch(self.kind)
        return dict(self._seconds)


class _Thread(threading.local):
    clock: FitClock | None = None


_thread = _Thread()


@contextlib.contextmanager
def started() -> Iterator[FitClock]:
    """Yields the clock of a `fit` that begins, the one of this thread."""
    outer, _thread.clock = _thread.clock, FitClock()
    try:
        yield _thread.clock
    finally:
        _thread.clock = outer


def within(kind: str) -> contextlib.AbstractContextManager[None]:
    """Returns a context of a kind of work, if a `fit` runs in this thread."""
    clock = _thread.clock
    return contextlib.nullcontext() if clock is None else clock.within(kind)
