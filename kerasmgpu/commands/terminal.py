"""Where tables are printed."""

import os

from rich.console import Console

_COLUMNS_OF_A_FILE = 140


def console():
    """The terminal or notebook; for a file or pipe, room for every column.

    COLUMNS in the environment is the width of all of them.

    Returns:
        A `rich.console.Console`.
    """
    found = Console()
    if found.is_terminal or found.is_jupyter or "COLUMNS" in os.environ:
        return found
    return Console(width=_COLUMNS_OF_A_FILE)
