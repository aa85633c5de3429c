"""Exceptions of the user's code as one line."""

import re
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from kerasmgpu.commands import search_path
from kerasmgpu.errors import InputError, one_line
from kerasmgpu.user_lines import users_line

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Terminal colour codes in Keras's messages."""
_LONGEST_MESSAGE = 500
_IN_GRAPH = "Graph execution error:"
_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_HINTS = {
    "Virtual devices cannot be modified": (
        "commands make the devices before they import a program: use "
        "kerasmgpu.strategy(virtual_devices=...) there, or put the line under "
        '`if __name__ == "__main__":`'
    )
}
"""How to fix errors of TensorFlow that a command has caused, by their start."""
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
    place = users_line(frames)
    place = place or users_line(traceback.extract_tb(error.__traceback__))
    message = one_line(text)
    hints = [
        hint for start, hint in _HINTS.items() if message.startswith(start)
    ]
    if len(message) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2  # The cause may be at either end.
        message = f"{message[:half]} … {message[-half:]}"
    line = f"{type(error).__name__}: {message}"
    return "; ".join([f"{line} ({place})" if place else line, *hints])


def place_in_stack(text: str) -> str | None:
    """Returns the user's line in a stack of `faulthandler`, or `None`.

    The innermost call is the first one.
    """
    frames = [
        traceback.FrameSummary(file, int(number), name)
        for file, number, name in _FAULT.findall(text)
    ]
    return users_line(reversed(frames))


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
