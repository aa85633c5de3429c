"""The worker processes of one machine, from start to end."""

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

from kerasmgpu.launch.output import WorkerOutput

_GUARD = pathlib.Path(__file__).with_name("guard.py")
_SECONDS_TO_DIE = 5.0  # After SIGKILL, which a hung driver may hold up.


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a worker ended.

    Args:
        number: Integer, the worker's number in the job.
        status: Integer, its exit status (negative: the signal).
        lines: List of strings, the last that it printed.
    """

    number: int
    status: int
    lines: list


class Process:
    """One worker with its guard.

    Args:
        number: Integer, the worker's number in the job.
        command: List of strings.
        environment: Mapping, the worker's whole environment.
        terminal: `output.Terminal`.
        log: Path to append its output to, or `None`.
    """

    def __init__(self, number, command, environment, terminal, log=None):
        self.number = number
        ours, theirs = socket.socketpair()
        with theirs:
            self._guard = subprocess.Popen(
                # -I -S: nothing of the user's runs or is imported there.
                [sys.executable, "-I", "-S", _GUARD, str(theirs.fileno())]
                + list(command),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.socket = ours
        self._output = WorkerOutput(number, self._guard.stdout, terminal, log)

    def ask_to_end(self):
        """Sends SIGTERM to the worker: it saves, where it can, and ends."""
        for number in (signal.SIGTERM, signal.SIGCONT):  # If it is stopped.
            self._guard.send_signal(number)

    def read_end(self):
        """Status and time of death, once the socket has something to read.

        The status is `None` where the guard was killed and could not tell.
        """
        report = self.socket.recv(4096)
        if not report:
            return None, time.monotonic()
        report = json.loads(report)
        return report["status"], report["time"]

    def kill(self):
        """Kills worker, guard and all that they started."""
        try:
            # The guard is not reaped yet, so the number is still the group's.
            os.killpg(self._guard.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # Nobody alive is left there; macOS says "permission".

    def collect(self, status, deadline):
        """Waits for the end of the process and its output, once killed.

        Args:
            status: Integer, the worker's exit status, or `None`: the guard's.
            deadline: Number, until when to wait, by `time.monotonic`.

        Returns:
            How it ended.
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
    """The workers that run on this machine now.

    Args:
        terminal: `output.Terminal`.
        log_dir: Path of a folder for `worker-N.log`, or `None`.
    """

    def __init__(self, terminal, log_dir=None):
        self._terminal = terminal
        self._log_dir = log_dir
        self._processes = {}  # By number.
        self._selector = selectors.DefaultSelector()

    def __len__(self):
        return len(self._processes)

    def numbers(self):
        """String, the numbers of the workers that run."""
        return ", ".join(f"worker {number}" for number in self._processes)

    def start(self, number, command, environment):
        """Starts one worker."""
        log = self._log_dir and self._log_dir / f"worker-{number}.log"
        process = Process(number, command, environment, self._terminal, log)
        self._processes[number] = process
        self._selector.register(process.socket, selectors.EVENT_READ, process)

    def wait(self, seconds, *others):
        """Waits for a worker's end or for something to read elsewhere.

        Args:
            seconds: Number, how long at most.
            *others: More sockets to look at.

        Returns:
            List of `Ended` in the order of death, and the list of those of
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

    def ask_to_end(self):
        """Sends SIGTERM to every worker."""
        for process in self._processes.values():
            process.ask_to_end()

    def kill(self):
        """Kills every worker; returns the list of `Ended`."""
        processes, self._processes = self._processes.values(), {}
        return self._kill([(p, -signal.SIGKILL) for p in processes])

    def _kill(self, processes):
        """Kills pairs of `Process` and status; returns the list of `Ended`."""
        for process, _ in processes:
            self._selector.unregister(process.socket)
            process.kill()
        # For all together: heartbeats wait for this.
        deadline = time.monotonic() + _SECONDS_TO_DIE
        return [
            process.collect(status, deadline) for process, status in processes
        ]
