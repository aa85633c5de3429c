"""Writes the program after each pass to a folder, for people to read."""

import itertools
import os
import pathlib
import re
from collections.abc import Callable

from kerasmgpu.errors import checked_path

VARIABLE = "KERASMGPU_DUMP"
"""Environment variable with the folder; see `docs/lowering.md`."""

_numbers = itertools.count()


class Dump:
    """The dump of one function: a folder with a file for each pass.

    Creates the folder, if `KERASMGPU_DUMP` is set, and else does nothing.
    """

    def __init__(self, name: str) -> None:
        self._folder: pathlib.Path | None = None
        root = os.environ.get(VARIABLE)
        if root:
            part = re.sub(r"\W+", "_", name)
            number, process = next(_numbers), os.getpid()
            folder = f"{part}_{number}_of_process_{process}"
            self._folder = pathlib.Path(checked_path(root, VARIABLE), folder)
            self._folder.mkdir(parents=True, exist_ok=True)
        self._passes = itertools.count()

    def __call__(self, name: str, text: Callable[[], str]) -> None:
        """Writes the program after a pass to the next file, if there is a folder."""
        if self._folder is not None:
            file = f"{next(self._passes):02}_{name}.txt"
            (self._folder / file).write_text(text(), "utf-8")
