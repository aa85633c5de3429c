"""Exceptions of the user's code as one line."""

import os
import pathlib
import re
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable
from typing import Any

from kerasmgpu.errors import InputError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Terminal colour codes in Keras's messages."""
_LONGEST_MESSAGE = 500


def in_one_line(error: Exception) -> str:
    """Returns type, message and the last line of the user's code."""
    message = " ".join(_COLOURS.sub("", str(error)).split())
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + " …"
    place = _users_place(error.__traceback__)
    return f"{type(error).__name__}: {message}" + (
        f" ({place})" if place else ""
    )


def naming_the_function(
    work: Callable[[dict[str, Any]], Any],
) -> Callable[[dict[str, Any]], Any]:
    """Returns a child's work on a job whose exceptions name the user's function.

    Args:
        work: Function of a job, a dictionary. It is called with the job's
            `"sys_path"`; exceptions but `InputError` become one, which names
            the function in `"build"`.
    """

    def do(job: dict[str, Any]) -> Any:
        sys.path[:] = job["sys_path"]
        try:
            return work(job)
        except InputError:
            raise
        except Exception as error:
            traceback.print_exc()
            line = in_one_line(error)
            raise InputError(f"{job['build']} raised {line}") from error

    return do


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
