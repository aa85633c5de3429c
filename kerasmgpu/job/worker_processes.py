"""Processes of this machine that are workers of a job, as `/proc` shows them.

On Linux; elsewhere there are none. Imports no TensorFlow.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterator

from kerasmgpu.errors import InputError, printable
from kerasmgpu.job import cluster
from kerasmgpu.job.cluster import Worker

_PROC = pathlib.Path("/proc")
_LONGEST_COMMAND = 120  # Characters of a message.


@dataclasses.dataclass(frozen=True)
class Process:
    """A process whose environment makes it a worker.

    Attributes:
        pid: Integer.
        started: Integer, when it began, in the kernel's ticks.
        above: Tuple of pairs of both, the processes above it, its parent first.
        index: Integer, its index in the job.
        folder: String, its working directory.
        command: Tuple of strings.
        environ: Frozen set of strings `"NAME=value"`.
    """

    pid: int
    started: int
    above: tuple[tuple[int, int], ...]
    index: int
    folder: str = ""
    command: tuple[str, ...] = ()
    environ: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[int, int]:
        """Pair that no other process of this machine has had."""
        return self.pid, self.started

    @property
    def age(self) -> tuple[int, int]:
        """Pair that sorts processes, the oldest first."""
        return self.started, self.pid

    def differs_from(self, other: "Process") -> tuple[int, ...]:
        """Returns how much two processes differ, the strongest sign first."""
        return (
            self._steps_to(other) + other._steps_to(self),
            self.folder != other.folder,
            _different(self.command, other.command),
            len(self.environ ^ other.environ),
        )

    def _steps_to(self, other: "Process") -> int:
        """Counts the processes between this one and the first above both."""
        shared = set(other.above)
        return next(
            (n for n, key in enumerate(self.above) if key in shared),
            len(self.above),
        )

    def __str__(self) -> str:
        text = printable(" ".join(self.command))
        return f"process {self.pid}: {text[:_LONGEST_COMMAND]}"


def _different(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    # By words: a shell's command is one argument.
    ours, theirs = " ".join(one).split(), " ".join(other).split()
    different = sum(a != b for a, b in zip(ours, theirs))
    return different + abs(len(ours) - len(theirs))


def identity() -> dict[str, int | str]:
    """Returns what a worker tells worker 0 about itself, to be found there.

    `"programs"` are those of its parent when it began to wait: of two jobs one
    may have been refused, and have ended, before the other one's worker 0 looks.
    """
    here = machine()
    programs = programs_of(os.getppid()) if here else 0
    return {"pid": os.getpid(), "machine": here, "programs": programs}


@functools.cache
def machine() -> str:
    """Identifies a machine and its processes' ids; empty where that is unknown."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:  # Systems other than Linux.
        return ""


def launcher(rank_variable: str) -> str:
    """Returns the process that started all workers of this machine.

    That is the nearest one above this process whose environment has no rank.
    """
    pid = os.getppid()
    try:
        while pid > 1:
            variables = b"\0" + (_PROC / str(pid) / "environ").read_bytes()
            if f"\0{rank_variable}=".encode() not in variables:
                break
            pid = parent_and_start(pid)[0]
    except OSError:  # No such file system, or another user's process.
        pass
    try:
        return f"{machine()} {pid} {parent_and_start(pid)[1]}"
    except OSError:
        return f"{machine()} {pid}"


def parent_and_start(pid: int) -> tuple[int, int]:
    """Returns the process above one, and when this one began, in ticks."""
    text = (_PROC / str(pid) / "stat").read_text("utf-8", errors="replace")
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), int(fields[19])


def workers_like(worker: Worker) -> Iterator[Process]:
    """Yields the processes of this machine with the variables of one job.

    Processes of other users can't be read. A worker's child processes have its
    variables, too.
    """
    parsed = functools.cache(_worker_of)
    for name in os.listdir(_PROC) if _PROC.is_dir() else ():
        if not name.isdigit():
            continue
        folder = _PROC / name
        try:
            text = os.fsdecode((folder / "environ").read_bytes())
            items = frozenset(filter(None, text.split("\0")))
            found = parsed(items)
            if found is None or not _are_of_one_job(found, worker):
                continue
            command = os.fsdecode((folder / "cmdline").read_bytes())
            yield Process(
                pid=int(name),
                started=parent_and_start(int(name))[1],
                above=tuple(_above(int(name))),
                index=found.index,
                folder=os.readlink(folder / "cwd"),
                command=tuple(command.rstrip("\0").split("\0")),
                environ=items,
            )
        except OSError:  # Ended meanwhile, or another user's.
            continue


def programs_of(parent: int) -> int:
    """Counts the children of a process that run Python."""
    found = 0
    for name in os.listdir(_PROC):
        try:
            if not name.isdigit() or parent_and_start(int(name))[0] != parent:
                continue
            command = (_PROC / name / "cmdline").read_bytes()
        except OSError:  # Ended meanwhile.
            continue
        is_python = b"python" in command.partition(b"\0")[0]
        helps = b"multiprocessing.resource_tracker" in command
        found += is_python and not helps
    return found


def _above(pid: int) -> Iterator[tuple[int, int]]:
    parent = parent_and_start(pid)[0]
    while parent > 0:
        above, started = parent_and_start(parent)
        yield parent, started
        parent = above


def _worker_of(items: frozenset[str]) -> Worker | None:
    environ = dict(item.split("=", 1) for item in items if "=" in item)
    try:
        return cluster.from_environment(environ)
    except InputError:
        return None


def _are_of_one_job(one: Worker, other: Worker) -> bool:
    places = one.addresses, one.meeting, one.num_workers
    return places == (other.addresses, other.meeting, other.num_workers)


def is_alive(process: Process) -> bool:
    """Whether a process that was seen has not ended."""
    try:
        return parent_and_start(process.pid)[1] == process.started
    except OSError:
        return False
