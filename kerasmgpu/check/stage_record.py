"""The stages of a process, in a file that its parent reads meanwhile."""

import json
import pathlib
import time
from typing import Any

from kerasmgpu.callbacks import json_lines
from kerasmgpu.commands import user_errors
from kerasmgpu.errors import InputError, one_line
from kerasmgpu.job import loss

_FILE = "stages.jsonl"


class StageRecord:
    """Writes when stages begin and end, and why one failed."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._path = folder / _FILE
        self._running: str | None = None

    def enter(self, stage: str) -> None:
        """Ends the running stage and begins another."""
        self.end()
        self._running, self._began = stage, time.perf_counter()
        self._write({"begins": stage})

    def end(self, error: Exception | None = None) -> None:
        """Ends the running stage, if there is one."""
        if self._running is None:
            return
        seconds = time.perf_counter() - self._began
        text = error and _described(error)
        self._write({"stage": self._running, "seconds": seconds, "error": text})
        self._running = None

    def tell(self, **facts: Any) -> None:
        """Writes facts, JSON-serialisable."""
        self._write({"facts": facts})

    def _write(self, line: dict[str, Any]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _described(error: Exception) -> str:
    """Returns an error in one line, with the user's line of code."""
    if isinstance(error, InputError):
        return one_line(error)
    lost = loss.lost_in([one_line(error)])
    if lost is not None:
        return f"worker {lost[0]} is lost: {lost[1]}"
    return user_errors.in_one_line(error)


def read(
    folder: pathlib.Path,
) -> tuple[list[dict[str, Any]], str | None, dict[str, Any]]:
    """Reads the stages of a process.

    Returns:
        List of the stages that have ended, dictionaries of `"stage"`,
        `"seconds"` and `"error"`; the name of the stage that runs, or `None`;
        and the facts.
    """
    path = folder / _FILE
    text = path.read_text("utf-8") if path.exists() else ""
    ended: list[dict[str, Any]] = []
    running, facts = None, {}
    for entry in json_lines.parse(text)[0]:
        if "begins" in entry:
            running = entry["begins"]
        elif "facts" in entry:
            facts.update(entry["facts"])
        else:
            running = None
            ended.append(entry)
    return ended, running, facts
