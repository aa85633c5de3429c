"""Runs a command as a child process: shows and logs its output."""

import contextlib
import os
import re
import subprocess

_SECONDS_TO_STOP = 10  # Between SIGTERM and SIGKILL.


def run_logged(command, log):
    """Runs a command, prints its output and writes it to a file.

    When this process is interrupted, it ends the command.

    Args:
        command: List of strings.
        log: Path of the file; an existing file is replaced.

    Returns:
        The command's exit status (negative: the signal that ended it), and a
        list of its last 200 lines.
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    last_lines = []
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
        for line in process.stdout:
            print(line, end="", flush=True)
            file.write(line)
            last_lines = [*last_lines[-199:], line]
        return process.wait(), last_lines


@contextlib.contextmanager
def _ended_with_us(process):
    """Ends the process when the block ends, also by an exception (Ctrl-C)."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()


def failure_reason(status, lines):
    """Returns the line with the reason from a failed command's output.

    Args:
        status: Integer, its exit status.
        lines: Sequence of strings, its last lines of output.
    """
    lines = [line.strip() for line in lines if line.strip()]
    told = [
        line
        for line in lines
        if re.match(r"error: |FATAL |[\w.]*(Error|Exception)\b", line)
    ]
    reason = (told or lines or ["it printed nothing"])[-1]
    if status < 0:
        return f"ended by signal {-status}; last line: {reason}"
    return reason.removeprefix("error: ")
