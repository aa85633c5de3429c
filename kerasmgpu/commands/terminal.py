"""Where tables are printed."""

from rich.console import Console

_COLUMNS_OF_A_FILE = 140


def console():
    """The terminal; or, for a file or pipe, room for every column of a table.

    Returns:
        A `rich.console.Console`.
    """
    found = Console()
    return found if found.is_terminal else Console(width=_COLUMNS_OF_A_FILE)
