"""A command's output folder."""

import pathlib

from kerasmgpu.commands.complete_files import complete
from kerasmgpu.errors import InputError


def empty(path):
    """Creates a folder, or accepts an empty one.

    Args:
        path: String or path-like.

    Returns:
        `pathlib.Path`.

    Raises:
        InputError: If it is a file or a folder that is not empty.
    """
    folder = pathlib.Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            "output_dir must be new or empty, so that nothing is "
            f"overwritten. Received: {folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_text(path, text):
    """Writes or replaces a text file atomically.

    Args:
        path: `pathlib.Path`.
        text: String.
    """
    with complete(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
