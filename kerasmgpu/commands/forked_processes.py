"""Runs jobs in copies of a process that has imported TensorFlow; see
`fork_server`."""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence

from kerasmgpu.commands import child_processes, search_path


@contextlib.contextmanager
def copies_with(
    modules: Sequence[str], environment: dict[str, str]
) -> Iterator[child_processes.Start]:
    """Context with what starts a job in a process that has imported modules.

    The modules are imported once. Where a process with TensorFlow can't be copied
    (on macOS), each job is a new process.

    Args:
        modules: Sequence of strings, names of modules of ours.
        environment: Dictionary of variables that are set when they're imported.

    Yields:
        Function, the `start` of `child_processes.run_job`.
    """
    if sys.platform != "linux":
        yield child_processes.start_new
        return
    server = _Server(modules, environment)
    try:
        yield server.start
    finally:
        server.end()


class _Copy:
    """A job: a `child_processes.Child`."""

    stdin = None  # It ends with the process that it is a copy of.

    def __init__(self) -> None:
        self._began, self._ended = threading.Event(), threading.Event()
        self._pid, self._status = 0, 1

    @property
    def pid(self) -> int:
        self._began.wait()
        if not self._pid:
            raise ProcessLookupError("it never began")
        return self._pid

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("a copy", timeout or 0)
        return self._status

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def told(self, pid: int = 0, status: int | None = None) -> None:
        """Notes that it has begun, or how it has ended."""
        if status is None:
            self._pid = pid
        else:
            self._status = status
            self._ended.set()
        self._began.set()


class _Server:
    def __init__(
        self, modules: Sequence[str], environment: dict[str, str]
    ) -> None:
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            search_path.python("kerasmgpu.commands.fork_server", *modules),
            env=child_processes.environment_of_child(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._jobs: list[tuple[_Copy, pathlib.Path]] = []
        self._lock = threading.Lock()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def start(
        self,
        module: str,
        folder: pathlib.Path,
        log: pathlib.Path,
        environment: dict[str, str],
    ) -> _Copy:
        """Starts a job; see `child_processes.Start`."""
        job = _Copy()
        with self._lock:
            request = {
                "number": len(self._jobs),
                "module": module,
                "folder": str(folder),
                "log": str(log),
                "environment": environment,
            }
            self._jobs.append((job, log))
            try:
                print(json.dumps(request), file=self._process.stdin, flush=True)
            except BrokenPipeError:
                self._listener.join()
                self._end_jobs()
        return job

    def end(self) -> None:
        """Ends the process, and its jobs."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()
        self._listener.join()
        self._errors.close()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            said = json.loads(line)
            job, _ = self._jobs[said.pop("number")]
            job.told(**said)
        self._process.wait()
        with self._lock:
            self._end_jobs()

    def _end_jobs(self) -> None:
        """Ends jobs that the process has left, with what it printed last."""
        self._errors.seek(0)
        said = self._errors.read()
        for job, log in self._jobs:
            if not job.has_ended:
                if said:
                    log.write_bytes(said)
                job.told(status=self._process.wait() or 1)
