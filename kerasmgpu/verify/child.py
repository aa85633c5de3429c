"""One run, as the process `python -m kerasmgpu.verify.child FOLDER`."""

import os
import pathlib
import re
import sys
import sysconfig
import traceback
import types
from typing import Any

from kerasmgpu.commands import child_processes
from kerasmgpu.errors import InputError

_PHASE = "phase.txt"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Terminal colour codes in Keras's messages."""
_LONGEST_MESSAGE = 500


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Trains once with the settings of a job; see `training.train`.

    Raises:
        InputError: Instead of any exception of the user's program.
    """
    phase = "starting"

    def enter(name: str) -> None:
        nonlocal phase
        phase = name
        path = pathlib.Path(job["folder"], _PHASE)
        path.write_text(name, encoding="utf-8")

    sys.path[:] = job["sys_path"]
    try:
        enter("starting TensorFlow")
        from kerasmgpu.verify.training import train

        return train(job, enter)
    except InputError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise InputError(f"{phase} raised {_in_one_line(error)}") from error


def read_phase(folder: pathlib.Path) -> str:
    """Returns the phase that a run's process entered last."""
    path = folder / _PHASE
    return path.read_text("utf-8") if path.exists() else "starting"


def _in_one_line(error: Exception) -> str:
    message = " ".join(_COLOURS.sub("", str(error)).split())
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + " …"
    place = _users_place(error.__traceback__)
    return f"{type(error).__name__}: {message}" + (
        f" ({place})" if place else ""
    )


def _users_place(trace: types.TracebackType | None) -> str | None:
    """Returns the last line of the user's code in a traceback, or `None`.

    That is code outside Python, the installed packages and kerasmgpu.
    """
    paths = sysconfig.get_paths()
    foreign = [
        os.path.realpath(paths[name])
        for name in ("stdlib", "purelib", "platlib")
    ]
    foreign.append(str(pathlib.Path(__file__).resolve().parents[1]))
    for frame in reversed(traceback.extract_tb(trace)):
        path = os.path.realpath(frame.filename)
        is_foreign = any(path.startswith(folder) for folder in foreign)
        if not is_foreign and os.path.exists(path):
            name = os.path.basename(path)
            return f"{name}, line {frame.lineno}: {frame.line}"
    return None


if __name__ == "__main__":
    child_processes.do_job(main)
