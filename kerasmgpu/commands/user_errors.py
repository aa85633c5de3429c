"""Exceptions of the user's code as one line."""

import linecache
import os
import pathlib
import re
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kerasmgpu.errors import InputError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Terminal colour codes in Keras's messages."""
_LONGEST_MESSAGE = 500
_GRAPH_ERROR = "Graph execution error:"
_PACKAGES = {"site-packages", "dist-packages"}
_FILE = re.compile(r'\s*File "([^"]+)", line (\d+)')


def in_one_line(error: Exception) -> str:
    """Returns type, message and the last line of the user's code."""
    text = _COLOURS.sub("", str(error))
    place = _users_place(error.__traceback__)
    if text.startswith(_GRAPH_ERROR):
        # The step was running when it failed: where its operation was made is
        # in the message, between many other lines.
        place = place_in(reversed(text.splitlines())) or place
        text = f"{_GRAPH_ERROR} {cause_in_graph(text.splitlines()) or text}"
    message = " ".join(text.split())
    if len(message) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2  # The cause may be at either end.
        message = f"{message[:half]} … {message[-half:]}"
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


def cause_in_graph(lines: Sequence[str]) -> str:
    """Returns the line with the cause of a "Graph execution error", or ""."""
    # TensorFlow numbers several errors, and shows a single error's node below.
    for line, following in zip(lines, lines[1:]):
        numbered = line.lstrip().startswith("(0) ")
        if numbered or following.startswith("\t [["):
            return line.strip()
    return ""


def place_in(lines: Iterable[str]) -> str | None:
    """Returns the first line of the user's code among those of a traceback.

    Args:
        lines: Iterable of strings, some of which are `File "…", line …`.
    """
    found = (match for line in lines if (match := _FILE.match(line)))
    places = ((match[1], int(match[2])) for match in found)
    return _first_of_user(
        (path, number, linecache.getline(path, number).strip())
        for path, number in places
    )


def _users_place(trace: types.TracebackType | None) -> str | None:
    """Returns the last line of the user's code in a traceback, or `None`."""
    return _first_of_user(
        (frame.filename, frame.lineno, frame.line)
        for frame in reversed(traceback.extract_tb(trace))
    )


def _first_of_user(places: Iterable[tuple[Any, ...]]) -> str | None:
    """Returns the first of some files, lines and code that is the user's.

    That is code outside Python, the installed packages and kerasmgpu.
    """
    paths = sysconfig.get_paths()
    foreign = [
        os.path.realpath(paths[name])
        for name in ("stdlib", "purelib", "platlib")
    ]
    foreign.append(str(pathlib.Path(__file__).resolve().parents[1]))
    for file, number, code in places:
        path = os.path.realpath(file)
        is_foreign = any(path.startswith(folder) for folder in foreign)
        # Packages may be in another environment's folder, too.
        is_foreign |= bool(_PACKAGES & set(pathlib.Path(path).parts))
        if not is_foreign and os.path.exists(path):
            return f"{os.path.basename(path)}, line {number}: {code}"
    return None
