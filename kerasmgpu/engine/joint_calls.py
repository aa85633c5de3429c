"""Counts the calls that all workers of a job make together, in one order.

Each call contains collectives: a step of a model, metrics' results, a read of a
sharded variable, a partitioned function. If workers wait for one another for
ever, the calls of each show where their orders differ (`job/places.py`).
"""

import threading

_KEPT = 64
"""Latest names that are kept: workers can't be many calls apart."""


class JointCalls:
    """Counts a worker's joint calls.

    Attributes:
        count: Integer, joint calls begun.
        thread: Integer, identifier of the thread that began the last one.
    """

    def __init__(self) -> None:
        self.count = 0
        self.thread = threading.main_thread().ident or 0
        self._names = [""] * _KEPT

    def note(self, name: str) -> None:
        """Counts a call that begins; its name is the same on all workers."""
        self.count += 1
        self.thread = threading.get_ident()
        self._names[self.count % _KEPT] = name

    def last(self, number: int) -> list[str]:
        """Returns the names of the last calls, the latest last."""
        count = self.count
        first = max(count - min(number, _KEPT - 1), 0)
        return [self._names[n % _KEPT] for n in range(first + 1, count + 1)]


joint_calls = JointCalls()
"""Counts the calls of this process, which belongs to one job at most."""
