"""A report's folder or file, its tables, and the console for them."""

import functools
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import TextIO

from rich.console import Console

from kerasmgpu.commands.fitted_table import FittedTable
from kerasmgpu.errors import InputError, checked_path
from kerasmgpu.stores.places import checked_place
from kerasmgpu.stores.store_path import StorePath

_COLUMNS_OF_A_FILE = 1000  # A program that reads it looks for whole lines.


def empty_folder(path: str | os.PathLike[str]) -> pathlib.Path:
    """Creates a folder, or accepts an empty one.

    Raises:
        InputError: If it is a file or a folder that is not empty.
    """
    folder = pathlib.Path(checked_path(path, "output_dir"))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            "output_dir must be new or empty, so that nothing is "
            f"overwritten. Received: {folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def require_file_in_folder(
    path: str | os.PathLike[str] | StorePath | None,
) -> None:
    """Raises `InputError` if `--output` is given and can't be a file."""
    if not path:
        return
    file = checked_place(path, "--output")
    if isinstance(file, StorePath):
        return  # It has no folders, and says itself what it refuses.
    if not file.parent.is_dir() or file.is_dir():
        raise InputError(
            f"--output must be a file in a folder that exists. Received: {file}"
        )


def require_folder(
    path: str | os.PathLike[str], flag: str = "--output_dir"
) -> None:
    """Raises `InputError` if a flag's value can't be a folder to write to."""
    folder = pathlib.Path(checked_path(path, flag)).absolute()
    there = next(p for p in (folder, *folder.parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise InputError(
            f"{flag} must be a folder, new or existing, that can be "
            f"written to. Received: {path}"
        )


def console() -> Console:
    """Returns a console of the terminal's width; a file's lines aren't broken."""
    found = Console()
    if found.is_terminal or found.is_jupyter:
        return found
    return Console(width=_COLUMNS_OF_A_FILE)


def table(
    title: str,
    *left: str,
    right: Iterable[str] = (),
    caption: str | None = None,
) -> FittedTable:
    """Returns a table without rows: left-aligned columns, then right-aligned."""
    return FittedTable(title, left, [*right], caption)


def say(console: Console, line: str) -> None:
    """Prints a line as it is: no markup, no colours, no line breaks."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def say_if(show: bool, file: TextIO | None = None) -> Callable[[str], None]:
    """Returns a function that prints a line of progress at once, or does not."""
    say = functools.partial(print, file=file, flush=True)
    return say if show else lambda line: None


def mesh_text(mesh: dict[str, int]) -> str:
    """Returns the axes of a mesh and their sizes.

    Example:

    >>> mesh_text({"batch": 2, "model": 4})
    'batch=2, model=4'
    """
    return ", ".join(f"{name}={size}" for name, size in mesh.items())
