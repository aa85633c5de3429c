"""Runs Python programs as child processes that end with their parent.

* `run_job` runs a module of ours on a job, and returns its result;
* `run_logged` runs a command, shows its output and logs it;
* `output_of_python` returns what a short program prints.

A failure is an `InputError` with the reason in one line.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Protocol, TypeAlias

import kerasmgpu
from kerasmgpu import atomic_files
from kerasmgpu.commands import search_path, user_errors
from kerasmgpu.commands.command_line import say_loading
from kerasmgpu.commands.references import CHILD
from kerasmgpu.errors import InputError, one_line
from kerasmgpu.job.cluster import SEPARATE_VARIABLE

_JOB, _RESULT, _ERROR = "job.json", "result.json", "error.txt"
_SECONDS_TO_STOP = 10  # Between SIGTERM and SIGKILL.
_SECONDS_TO_WATCH = 0.2  # Between two calls of `watch`.


class ChildCrashed(InputError):
    """A child process timed out, or ended without an `InputError`.

    Args:
        status: Integer, its exit status (negative: the signal that ended it),
            or `None` if it timed out and was killed.
    """

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


def run_job(
    module: str,
    job: dict[str, Any],
    folder: pathlib.Path,
    timeout_seconds: float,
    environment: dict[str, str] | None = None,
    watch: Callable[[], None] = lambda: None,
    start: "Start | None" = None,
) -> dict[str, Any]:
    """Runs a module's `main(job)` in a child process.

    It is no worker of a job, whatever this process is, unless `environment`
    sets `cluster.SEPARATE_VARIABLE` otherwise. When it ends, the processes that
    it has started are killed.

    Args:
        module: String, a module that calls `do_job` with its `main`.
        job: JSON-serialisable dictionary; `job.json` in the folder.
        folder: `pathlib.Path`, for the job, its result and `log.txt`, its
            output.
        environment: Dictionary of variables to set in it. Default: none.
        watch: Function to call several times a second while it runs; an
            exception kills it. Default: none.
        start: Function that starts it. Default: `start_new`.

    Returns:
        Dictionary, the result of `main`; `result.json` in the folder.

    Raises:
        InputError: The one that `main` raised.
        ChildCrashed: If it fails otherwise, or times out.
    """
    (folder / _JOB).write_text(json.dumps(job), encoding="utf-8")
    log = folder / "log.txt"
    child = (start or start_new)(module, folder, log, environment or {})
    status = _exit_status(child, timeout_seconds, watch)
    error = folder / _ERROR
    if error.exists():
        raise InputError(error.read_text("utf-8"))
    if status is None:
        raise ChildCrashed(
            f"did not end within {timeout_seconds:g} s (--timeout_seconds)",
            status,
        )
    if status != 0:
        lines = log.read_text("utf-8", errors="replace").splitlines()
        raise ChildCrashed(failure_reason(status, lines), status)
    return json.loads((folder / _RESULT).read_text("utf-8"))


def do_job(main: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Calls `main(job)` in a process that `run_job` started.

    Args:
        main: Function of the job's dictionary that returns the result's. The
            parent raises its `InputError` again.
    """
    end_with_parent()
    folder = pathlib.Path(sys.argv[1])
    try:
        result = main(json.loads((folder / _JOB).read_text("utf-8")))
    except InputError as error:
        line = one_line(error)
        atomic_files.write_text(folder / _ERROR, line)
        sys.exit(f"error: {line}")
    atomic_files.write_text(folder / _RESULT, json.dumps(result))


def end_with_parent() -> None:
    """Ends this process when its parent ends, even by kill -9.

    This process's standard input is a pipe to which the parent never writes.
    """

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class Child(Protocol):
    """Interface of a process that runs a job, as of a `subprocess.Popen`.

    Attributes:
        pid: Integer, its number, which is that of its process group.
        stdin: Its standard input, if this process is to close it.
    """

    @property
    def pid(self) -> int: ...

    @property
    def stdin(self) -> IO[Any] | None: ...

    def wait(self, timeout: float | None = None) -> int:
        """Returns its exit status.

        Raises:
            subprocess.TimeoutExpired: If it runs longer than the time-out.
        """


Start: TypeAlias = Callable[
    [str, pathlib.Path, pathlib.Path, dict[str, str]], Child
]
"""Starts a job; called with the module, the folder, the file for its output and
the variables of its environment."""


def start_new(
    module: str,
    folder: pathlib.Path,
    log: pathlib.Path,
    environment: dict[str, str],
) -> Child:
    """Starts a job as a new process; see `Start`."""
    with open(log, "w", encoding="utf-8") as file:
        # In a new session, so that its whole process group can be killed.
        return subprocess.Popen(
            search_path.python(module, str(folder)),
            env=environment_of_child(environment),
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def environment_of_child(more: dict[str, str]) -> dict[str, str]:
    """Returns the environment of a process that imports what this one does."""
    library = str(pathlib.Path(kerasmgpu.__file__).resolve().parents[1])
    inherited = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (library, inherited))),
        CHILD: "1",
        SEPARATE_VARIABLE: "1",
        **more,
    }


def _exit_status(
    child: Child, timeout_seconds: float, watch: Callable[[], None]
) -> int | None:
    """Waits for a job; returns its status, `None` on time-out."""
    deadline = time.monotonic() + timeout_seconds
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(_SECONDS_TO_WATCH)
            watch()
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        if child.stdin is not None:
            child.stdin.close()
        child.wait()


def run_logged(
    command: Sequence[str], log: str | os.PathLike[str]
) -> tuple[int, list[str]]:
    """Runs a command, prints its output and writes it to a file.

    When this process is interrupted, it ends the command.

    Args:
        log: Path of the file; an existing file is replaced.

    Returns:
        The command's exit status (negative: the signal that ended it), and a
        list of its last 200 lines.
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    last_lines: list[str] = []
    with (
        open(log, "w", encoding="utf-8") as file,
        _ended_with_us(
            subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
            )
        ) as process,
    ):
        for line in process.stdout or ():
            print(line, end="", flush=True)
            file.write(line)
            last_lines = [*last_lines[-199:], line]
        return process.wait(), last_lines


@contextlib.contextmanager
def _ended_with_us(
    process: subprocess.Popen[str],
) -> Iterator[subprocess.Popen[str]]:
    """Ends the process when the block ends, also by an exception (Ctrl-C)."""
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(_SECONDS_TO_STOP)
                except subprocess.TimeoutExpired:
                    process.kill()


def output_of_python(arguments: Sequence[str]) -> str:
    """Runs Python and returns what it prints.

    Args:
        arguments: Sequence of strings, such as `["-c", "print(1)"]`.

    Raises:
        ChildCrashed: If it fails.
    """
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True
    )
    if done.returncode != 0:
        lines = done.stderr.splitlines()
        raise ChildCrashed(
            failure_reason(done.returncode, lines), done.returncode
        )
    return done.stdout


_LIST_GPUS = f"""{search_path.WITHOUT_WORKING_DIRECTORY}
import json, tensorflow as tf
details = tf.config.experimental.get_device_details
gpus = tf.config.list_physical_devices("GPU")
print(json.dumps([details(gpu).get("device_name", gpu.name) for gpu in gpus]))
"""


def visible_gpus() -> list[str]:
    """Returns the names of the GPUs that TensorFlow sees.

    A child process lists them, so that this one initialises no device.

    Raises:
        InputError: If TensorFlow does not start.
    """
    say_loading("looking for GPUs")
    try:
        output = output_of_python(["-c", _LIST_GPUS])
    except ChildCrashed as error:
        raise InputError(f"TensorFlow does not start: {error}") from None
    return json.loads(output.splitlines()[-1])


def failure_reason(status: int, lines: Sequence[str]) -> str:
    """Returns the line with the reason from a failed program's output."""
    stripped = [line.strip() for line in lines if line.strip()]
    told = [
        line
        for line in stripped
        if re.match(r"error: |FATAL |[\w.]*(Error|Exception)\b", line)
    ]
    reason = (told or stripped or ["it printed nothing"])[-1]
    if status < 0:
        return f"ended by signal {-status}; last line: {reason}"
    if reason.endswith("Graph execution error:"):
        return f"{reason} {user_errors.cause_in_graph(lines)}".rstrip()
    return reason.removeprefix("error: ")
