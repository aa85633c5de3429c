"""Runs a module in a child process that ends with its parent."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import kerasmgpu
from kerasmgpu.commands import child_process, output_folder
from kerasmgpu.errors import InputError

_JOB, _RESULT = "job.json", "result.json"


def run_job(module, job, folder, timeout_seconds, environment=None):
    """Runs a module's `main(job)` in a child process; see `run_module`.

    Args:
        module: String, a module that calls `do_job` with its `main`.
        job: JSON-serialisable dictionary; `job.json` in the folder.
        folder: `pathlib.Path`, for the job, its result and its output.
        timeout_seconds: Float.
        environment: Dictionary of variables to set in it. Default: none.

    Returns:
        Dictionary, the result of `main`; `result.json` in the folder.

    Raises:
        InputError: If it fails or times out, with the reason in one line.
    """
    (folder / _JOB).write_text(json.dumps(job), encoding="utf-8")
    log = folder / "log.txt"
    run_module(module, str(folder), log, timeout_seconds, environment)
    return json.loads((folder / _RESULT).read_text("utf-8"))


def do_job(main):
    """Calls `main(job)` in a process that `run_job` started; see `run_child`.

    Args:
        main: Function from the job's dictionary to the result's.
    """

    def in_folder(folder):
        job = json.loads((folder / _JOB).read_text("utf-8"))
        output_folder.write_text(folder / _RESULT, json.dumps(main(job)))

    run_child(in_folder)


def run_module(module, argument, log, timeout_seconds, environment=None):
    """Runs `python -m module argument`, and raises if it fails.

    Args:
        module: String, a module that calls `run_child` with its `main`.
        argument: String.
        log: Path of the file for its output.
        timeout_seconds: Float.
        environment: Dictionary of variables to set in it. Default: none.

    Raises:
        InputError: If it fails or times out, with the reason in one line.
    """
    status = exit_status(module, argument, log, timeout_seconds, environment)
    if status is None:
        raise InputError(
            f"it did not end within {timeout_seconds:g} s (--timeout_seconds)"
        )
    if status != 0:
        text = pathlib.Path(log).read_text("utf-8", errors="replace")
        raise InputError(failure_reason(status, text.splitlines()))


def exit_status(module, argument, log, timeout_seconds, environment=None):
    """Runs `python -m module argument`, waits, returns its exit status.

    When it ends, the processes that it has started are killed.

    Args:
        module: String, a module that calls `end_with_parent`.
        argument: String.
        log: Path of the file for its output.
        timeout_seconds: Float.
        environment: Dictionary of variables to set in it. Default: none.

    Returns:
        Its exit status (negative: the signal that ended it), or `None` if it
        timed out and was killed.
    """
    library = str(pathlib.Path(kerasmgpu.__file__).resolve().parents[1])
    inherited = os.environ.get("PYTHONPATH")
    with open(log, "w", encoding="utf-8") as file:
        # In a new session, so that its whole process group can be killed.
        process = subprocess.Popen(
            [sys.executable, "-m", module, argument],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    filter(None, (library, inherited))
                ),
                **(environment or {}),
            },
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.stdin.close()
            process.wait()


def failure_reason(status, lines):
    """Returns the reason for a failure, with the cause of a graph error.

    Args:
        status: Integer, the exit status.
        lines: Sequence of strings, the process's output.
    """
    reason = child_process.failure_reason(status, lines)
    if not reason.endswith("Graph execution error:"):
        return reason
    # TensorFlow numbers several errors, and shows a single error's node below.
    for line, following in zip(lines, lines[1:]):
        numbered = line.lstrip().startswith("(0) ")
        if numbered or following.startswith("\t [["):
            return f"{reason} {line.strip()}"
    return reason


def run_child(main):
    """Calls `main(folder)` in a process that `run_module` started.

    The process ends with its parent, and prints an `InputError` in one line.

    Args:
        main: Function of a `pathlib.Path`, the process's argument.
    """
    end_with_parent()
    try:
        main(pathlib.Path(sys.argv[1]))
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)


def end_with_parent():
    """Ends this process when its parent ends, even by kill -9.

    This process's standard input is a pipe to which the parent never writes.
    """

    def wait():
        os.read(sys.stdin.fileno(), 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
