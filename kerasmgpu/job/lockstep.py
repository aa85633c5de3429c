"""Finds workers that have parted: each waits in a collective of its own.

TensorFlow's collectives wait for ever, for example where one worker is at the
end of its epoch and the others are in one more step. A thread of each worker
looks whether its joint calls (`engine/joint_calls.py`) go on. Workers that
begin none for a while tell the first worker where they are, and that worker
compares all of them. Imports no TensorFlow.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from absl import logging

from kerasmgpu.engine.joint_calls import JointCalls
from kerasmgpu.job import loss, places
from kerasmgpu.job.places import Place, Places
from kerasmgpu.job.watch import FirstWorker, OtherWorker
from kerasmgpu.user_lines import frames_of_thread

Where = Callable[[Sequence[FrameType]], tuple[str, str]]

_TIMES_UNPROVEN = 10
"""Time-outs until the job ends where workers have begun the same joint calls,
but some fewer of them: these may still compute or compile."""

_TIMES_THE_LONGEST = 3
"""Factor on the longest reported pause: shorter ones aren't reported again."""

_SECONDS_OF_A_MESSAGE = 3.0


class Lockstep(threading.Thread):
    """Thread that looks for parted workers once a second, until the job ends.

    Where workers that wait have begun different joint calls, nothing can go on,
    and the job ends. A worker that is late, in a callback for instance, is
    named in a warning.

    Args:
        seconds: Float, seconds in which no joint call begins, after which
            workers are compared.
        where: Function of a thread's frames, the innermost first, that returns
            the kind of its place, and words for it.
    """

    def __init__(
        self,
        watch: FirstWorker | OtherWorker,
        told: Places,
        calls: JointCalls,
        seconds: float,
        where: Where,
    ) -> None:
        super().__init__(name="kerasmgpu-lockstep", daemon=True)
        self._watch, self._told, self._calls = watch, told, calls
        self._seconds, self._where = seconds, where
        self._interval = min(1.0, seconds / 6)
        self._said: list[int] | None = None
        self._longest = 0.0

    def run(self) -> None:
        count, pause = -1, 0.0
        while not self._watch.wait_for_the_end(self._interval):
            if self._calls.count != count:
                count, pause = self._calls.count, 0.0
                continue
            pause += self._interval
            if pause < self._seconds / 2:
                continue
            here = self._where(frames_of_thread(self._calls.thread))
            self._told.tell(self._told.here(*here, pause))
            if isinstance(self._watch, FirstWorker):
                self._compare(self._watch)

    def _compare(self, watch: FirstWorker) -> None:
        known = self._told.known(2 * self._interval + _SECONDS_OF_A_MESSAGE)
        if len(known) < self._told.num_workers:
            return  # The others go on.
        waiting = {n: place for n, place in known.items() if place.waits}
        if not waiting:
            return
        pause = min(place.seconds for place in waiting.values())
        if pause < self._seconds:
            return
        differ = places.parted(waiting)
        counts = [place.count for place in known.values()]
        if not differ and len(waiting) == len(known) and len(set(counts)) > 1:
            self._warn(known, pause)
            if pause > _TIMES_UNPROVEN * self._seconds:
                differ = [n for n in known if known[n].count == min(counts)]
        if differ:
            text = places.difference(waiting, differ)
            watch.part(differ[0], loss.OUT_OF_STEP + text)
        elif len(waiting) < len(known):
            self._warn(known, pause)

    def _warn(self, known: Mapping[int, Place], pause: float) -> None:
        counts = [place.count for place in known.values()]
        if counts == self._said:
            self._longest = max(self._longest, pause)
            return
        told_by_callback = self._told.waits_for_input is not None
        if not told_by_callback and pause > _TIMES_THE_LONGEST * self._longest:
            self._said = counts
            logging.warning(
                "kerasmgpu: %s.", places.verdict(known, self._told.num_workers)
            )
