"""Exceptions of the user's code as one line."""

import os
import pathlib
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kerasmgpu.commands import search_path
from kerasmgpu.errors import InputError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Terminal colour codes in Keras's messages."""
_LONGEST_MESSAGE = 500
_IN_GRAPH = "Graph execution error:"
_PACKAGES = {"site-packages", "dist-packages"}
_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_FAULT = re.compile(r'^ *File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


def in_one_line(error: Exception) -> str:
    """Returns type, message and the last line of the user's code."""
    text = _COLOURS.sub("", str(error))
    frames: list[traceback.FrameSummary] = []
    if text.startswith(_IN_GRAPH):
        # The steps run outside of Python: the message has their lines.
        frames = [
            traceback.FrameSummary(file, int(number), name)
            for file, number, name in _FRAME.findall(text)
        ]
        text = cause_in_graph(text.splitlines()) or text
    place = _users_place(frames)
    place = place or _users_place(traceback.extract_tb(error.__traceback__))
    message = " ".join(text.split())
    if len(message) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2  # The cause may be at either end.
        message = f"{message[:half]} … {message[-half:]}"
    return f"{type(error).__name__}: {message}" + (
        f" ({place})" if place else ""
    )


def place_in_stack(text: str) -> str | None:
    """Returns the user's line in a stack of `faulthandler`, or `None`.

    Args:
        text: String, the stack, the innermost call first.
    """
    frames = [
        traceback.FrameSummary(file, int(number), name)
        for file, number, name in _FAULT.findall(text)
    ]
    return _users_place(reversed(frames))


def cause_in_graph(lines: Sequence[str]) -> str:
    """Returns the line with the cause of a "Graph execution error", or ""."""
    # TensorFlow numbers several errors, and shows a single error's node below.
    for line, following in zip(lines, lines[1:]):
        numbered = re.match(r"\s*\(0\) [A-Z_]+: *", line)
        if numbered:
            return line[numbered.end() :].strip()
        if following.startswith("\t [["):
            return line.strip()
    return ""


def naming_the_function(
    work: Callable[[dict[str, Any]], Any],
) -> Callable[[dict[str, Any]], Any]:
    """Returns a child's work on a job whose exceptions name the user's function.

    Args:
        work: Function of a job, a dictionary. It is called with the job's
            `"search_path"`; exceptions but `InputError` become one, which names
            the function in `"build"`.
    """

    def do(job: dict[str, Any]) -> Any:
        search_path.enter(job["search_path"])
        try:
            return work(job)
        except InputError:
            raise
        except Exception as error:
            traceback.print_exc()
            line = in_one_line(error)
            raise InputError(f"{job['build']} raised {line}") from error

    return do


def _users_place(frames: Iterable[traceback.FrameSummary]) -> str | None:
    """Returns the last line of the user's code in a call stack, or `None`.

    That is code outside Python, the installed packages and kerasmgpu.
    """
    paths = sysconfig.get_paths()
    foreign = [
        os.path.realpath(paths[name])
        for name in ("stdlib", "purelib", "platlib")
    ]
    foreign.append(str(pathlib.Path(__file__).resolve().parents[1]))
    for frame in reversed(list(frames)):
        path = os.path.realpath(frame.filename)
        is_foreign = any(path.startswith(folder) for folder in foreign)
        # Packages of another environment, that this one is built on.
        is_foreign |= bool(_PACKAGES & set(pathlib.Path(path).parts))
        if not is_foreign and os.path.exists(path):
            name = os.path.basename(path)
            return f"{name}, line {frame.lineno}: {frame.line}"
    return None
