"""Starts, watches and kills the worker processes of one machine."""

import dataclasses
import json
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kerasmgpu.launch.output import Terminal, WorkerOutput

_GUARD = pathlib.Path(__file__).with_name("guard.py")
_SECONDS_TO_DIE = 5.0  # After SIGKILL, which a hung driver may delay.


@dataclasses.dataclass(frozen=True)
class Ended:
    """Exit of a worker.

    Args:
        number: Integer, the worker's index in the job.
        status: Integer, its exit status (negative: the signal).
        lines: List of strings, its last lines of output.
    """

    number: int
    status: int
    lines: list[str]


class Process:
    """One worker with its guard.

    Args:
        environment: Mapping, the worker's complete environment.
        log: Path to append its output to, or `None`.
    """

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        terminal: Terminal,
        log: pathlib.Path | None = None,
    ) -> None:
        self.number = number
        ours, theirs = socket.socketpair()
        with theirs:
            self._guard = subprocess.Popen(
                # -I -S: the guard imports no code of the user's environment.
                [
                    sys.executable,
                    "-I",
                    "-S",
                    _GUARD,
                    str(theirs.fileno()),
                    *command,
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.socket = ours
        pipe: Any = self._guard.stdout
        self._output = WorkerOutput(number, pipe, terminal, log, environment)

    def ask_to_end(self) -> None:
        """Sends SIGTERM to the worker, which may save before it ends."""
        for number in (signal.SIGTERM, signal.SIGCONT):  # It may be stopped.
            self._guard.send_signal(number)

    def read_end(self) -> tuple[int | None, float]:
        """Reads the worker's status and time of exit from the ready socket.

        The status is `None` if the guard was killed before it sent it.
        """
        report = self.socket.recv(4096)
        if not report:
            return None, time.monotonic()
        report = json.loads(report)
        return report["status"], report["time"]

    def kill(self) -> None:
        """Kills worker, guard and their child processes."""
        try:
            # The guard is not reaped yet, so the group's id is not reused.
            os.killpg(self._guard.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # No process is left in the group; macOS raises the second.

    def collect(self, status: int | None, deadline: float) -> Ended:
        """Waits for the end of a killed process and its output.

        Args:
            status: Integer, the worker's exit status; `None`: use the guard's.
            deadline: Number, latest time to wait until, by `time.monotonic`.
        """
        lines = self._output.finish(max(0.1, deadline - time.monotonic()))
        try:
            self._guard.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            lines.append(
                f"[process {self._guard.pid} is still there "
                f"{_SECONDS_TO_DIE:.0f} s after SIGKILL]"
            )
        self.socket.close()
        if status is None:
            status = self._guard.poll() or -signal.SIGKILL
        return Ended(self.number, status, lines)


class Workers:
    """The running workers of this machine.

    Args:
        log_dir: Path of a folder for `worker-N.log`, or `None`.
    """

    def __init__(
        self, terminal: Terminal, log_dir: pathlib.Path | None = None
    ) -> None:
        self._terminal = terminal
        self._log_dir = log_dir
        self._processes: dict[int, Process] = {}  # By number.
        self._selector = selectors.DefaultSelector()

    def __len__(self) -> int:
        return len(self._processes)

    def numbers(self) -> str:
        """Returns the running workers' names, such as `"worker 0, worker 1"`."""
        return ", ".join(f"worker {number}" for number in self._processes)

    def start(
        self,
        number: int,
        command: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        """Starts one worker."""
        log = self._log_dir and self._log_dir / f"worker-{number}.log"
        process = Process(number, command, environment, self._terminal, log)
        self._processes[number] = process
        self._selector.register(process.socket, selectors.EVENT_READ, process)

    def wait(
        self, seconds: float, *others: socket.socket
    ) -> tuple[list[Ended], list[Any]]:
        """Waits until a worker ends or another socket can be read.

        Returns:
            List of `Ended` in the order of the exits, and the list of those
            `others` that can be read.
        """
        for other in others:
            self._selector.register(other, selectors.EVENT_READ)
        ready = [key for key, _ in self._selector.select(seconds)]
        for other in others:
            self._selector.unregister(other)
        dead = [
            (key.data, *key.data.read_end())
            for key in ready
            if key.data is not None
        ]
        dead.sort(key=lambda item: item[2])
        for process, _, _ in dead:
            del self._processes[process.number]
        ended = self._kill([(process, status) for process, status, _ in dead])
        return ended, [key.fileobj for key in ready if key.data is None]

    def ask_to_end(self) -> None:
        """Sends SIGTERM to every worker."""
        for process in self._processes.values():
            process.ask_to_end()

    def kill(self) -> list[Ended]:
        """Kills every worker; returns the list of `Ended`."""
        processes, self._processes = self._processes.values(), {}
        return self._kill([(p, -signal.SIGKILL) for p in processes])

    def _kill(
        self, processes: Sequence[tuple[Process, int | None]]
    ) -> list[Ended]:
        """Kills pairs of `Process` and status; returns the list of `Ended`."""
        for process, _ in processes:
            self._selector.unregister(process.socket)
            process.kill()
        # One deadline for all: no heartbeats are sent in the meantime.
        deadline = time.monotonic() + _SECONDS_TO_DIE
        return [
            process.collect(status, deadline) for process, status in processes
        ]
