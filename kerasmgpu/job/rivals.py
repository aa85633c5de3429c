"""Tells the workers of jobs apart that have the same variables, on one machine.

Two jobs that are started with the same `MASTER_PORT`, or the same `TF_CONFIG`,
have workers with equal ranks and addresses. What differs is where they come
from: the process that started them, their folder, command and environment. So
of several processes that claim one rank, the worker of a job is the one that
differs least from its worker 0.

All of that is read from `/proc`, on Linux. Imports no TensorFlow.
"""

import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from kerasmgpu.job.cluster import Worker
from kerasmgpu.job.worker_processes import (
    Process,
    is_alive,
    machine,
    parent_and_start,
    programs_of,
    workers_like,
)

_SECONDS_BETWEEN_LOOKS = 0.25


class Rivals:
    """The processes of this machine with one job's variables.

    Args:
        worker: `cluster.Worker`, the place of this process in the job.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        # Processes that have ended are still signs of another job.
        self._seen: dict[tuple[int, int], Process] = {}
        self._next_look = 0.0
        # Of this process's parent; those that end are still signs.
        self._most_programs = programs_of(os.getppid()) if machine() else 0

    def nearer(
        self, index: int, told: Mapping[str, Any], anew: bool = False
    ) -> str:
        """Describes a process that fits better than a worker; empty if none does.

        The job's worker `index` and its worker 0, this process, are nearest to
        each other. A worker of which this machine shows nothing passes: it is
        on another machine, or has set its variables itself (`is_doubtful`).

        Args:
            told: Mapping, what the worker says of itself (`identity`).
            anew: Boolean, whether to look at the processes in any case.
        """
        if not machine() or told.get("machine") != machine():
            return ""
        with self._lock:
            self._look(anew)
            mine, theirs = self._top(os.getpid()), self._top(told.get("pid"))
            if mine is None or theirs is None or theirs.index != index:
                return ""
            firsts, others = self._tops(mine.index), self._tops(index)
        found = _better(mine, firsts, theirs, others)
        found = found or _better(theirs, others, mine, firsts)
        return str(found) if found else ""

    def is_doubtful(self, told: Mapping[str, Any]) -> bool:
        """Whether a worker may be of another job, as far as its origin tells.

        Processes may set their variables themselves, as `torch`'s tutorials do,
        and `/proc` shows those that a process was started with. Then the
        workers of a job are children of one process, or each was started by
        hand, in a terminal of its own.

        Args:
            told: Mapping, what the worker says of itself (`identity`).
        """
        pid = told.get("pid")
        if not machine() or told.get("machine") != machine():
            return False
        if pid == os.getpid():
            return False
        with self._lock:
            self._look(anew=False)
            if self._top(os.getpid()) and self._top(pid):
                return False
        try:
            parent = parent_and_start(int(str(pid)))[0]
        except (OSError, ValueError):
            return True
        here = max(self._most_programs, programs_of(os.getppid()))
        self._most_programs = here
        there = programs_of(parent)
        if isinstance(told.get("programs"), int):
            there = max(there, told["programs"])
        if parent == os.getppid():
            return max(here, there) > self._worker.num_workers
        return here > 1 or there > 1

    def other_claimant(self) -> str:
        """Describes another process that claims this one's index; else empty."""
        with self._lock:
            self._look(anew=True)
            own = self._top(os.getpid())
            for process in self._tops(self._worker.index):
                if own is not None and process.key == own.key:
                    continue
                if is_alive(process):
                    return str(process)
        return ""

    def _look(self, anew: bool) -> None:
        if anew or time.monotonic() >= self._next_look:
            for process in workers_like(self._worker):
                self._seen[process.key] = process
            self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS

    def _tops(self, index: int) -> list[Process]:
        tops = [self._climb(p) for p in self._seen.values() if p.index == index]
        return list({top.key: top for top in tops}.values())

    def _top(self, pid: object) -> Process | None:
        """Returns the worker of which a process is a part, or `None`."""
        found = [p for p in self._seen.values() if p.pid == pid]
        return self._climb(max(found, key=lambda p: p.age)) if found else None

    def _climb(self, process: Process) -> Process:
        """Returns the first process with the same index above this one."""
        top = process
        for key in process.above:
            above = self._seen.get(key)
            if above is None or above.index != process.index:
                break
            top = above
        return top


def _better(
    one: Process,
    ones: list[Process],
    given: Process,
    candidates: list[Process],
) -> Process | None:
    """Returns the candidate that is nearer to `one` than `given`, or `None`.

    Of candidates that don't differ, the older one belongs to the older one of
    the processes `ones`.
    """
    distances = {p.key: one.differs_from(p) for p in candidates}
    nearest = min(candidates, key=lambda p: distances[p.key])
    if distances[nearest.key] < distances[given.key]:
        return nearest
    equal = [p for p in candidates if distances[p.key] == distances[given.key]]
    if len(equal) == 1:
        return None
    alike = [p for p in ones if given.differs_from(p) == distances[given.key]]
    place = sorted(p.age for p in alike).index(one.age)
    equal.sort(key=lambda p: p.age)
    fitting = equal[min(place, len(equal) - 1)]
    return None if fitting.key == given.key else fitting
