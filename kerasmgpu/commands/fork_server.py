"""A process that has imported some modules, and makes a copy of itself for a job.

Importing TensorFlow and Keras takes longer than most jobs. `forked_processes`
starts it as `python -m kerasmgpu.commands.fork_server MODULE…`. It takes a line of
JSON on standard input for each job, and writes one when a job begins, and one when
it ends. TensorFlow starts neither threads nor devices when it is imported (2.18 to
2.21), so a copy is as good as a new process. Jobs end with it, and it ends with its
parent, which holds the other end of its standard input.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import sys
import traceback
from typing import Any, NoReturn

_SECONDS_TO_WATCH = 0.05  # Between two looks for jobs that have ended.


def main(modules: list[str]) -> None:
    """Imports modules, and serves until standard input ends."""
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # Copies share what is imported.
    jobs: dict[int, tuple[int, int]] = {}
    given = b""
    while True:
        seconds = _SECONDS_TO_WATCH if jobs else None
        if select.select([0], [], [], seconds)[0]:
            read = os.read(0, 65536)
            if not read:
                break
            *lines, given = (given + read).split(b"\n")
            for line in lines:
                job = json.loads(line)
                pid, held = _copy(job, [end for _, end in jobs.values()])
                jobs[pid] = job["number"], held
                _say(number=job["number"], pid=pid)
        while jobs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            number, held = jobs.pop(pid)
            os.close(held)
            _say(number=number, status=os.waitstatus_to_exitcode(status))
    for pid in jobs:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _copy(job: dict[str, Any], others: list[int]) -> tuple[int, int]:
    """Runs a job in a copy of this process.

    Args:
        job: Dictionary: the `"module"` to run as a program, the `"folder"` that is
            its argument, its `"log"` and its `"environment"`.
        others: What this process holds of its other jobs; the copy closes it.

    Returns:
        The copy's process number, and the end of a pipe. The copy ends when the
        latter is closed: it is its standard input.
    """
    read, held = os.pipe()
    pid = os.fork()
    if pid:
        # Whoever is told of the copy can kill its group: it is there by then,
        # whether this process or the copy comes first.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        os.close(read)
        return pid, held
    status = 1
    try:
        os.setpgid(0, 0)  # So that what it starts can be killed with it.
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for source, target in ((read, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        for one in (read, held, log, *others):
            os.close(one)
        os.environ.update(job["environment"])
        sys.argv = [job["module"], job["folder"]]
        runpy.run_module(job["module"], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = _status_of(end)
    except BaseException:
        traceback.print_exc()
    _leave(status)


def _status_of(end: SystemExit) -> int:
    if isinstance(end.code, str):
        print(end.code, file=sys.stderr)
    return end.code if isinstance(end.code, int) else int(end.code is not None)


def _leave(status: int) -> NoReturn:
    """Ends a copy without what its original would do at its end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _say(**what: int) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
