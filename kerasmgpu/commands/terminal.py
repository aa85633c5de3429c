"""Where tables are printed."""

from rich.console import Console

_COLUMNS_OF_A_FILE = 140


def console():
    """The terminal or notebook; for a file or pipe, room for every column.

    Returns:
        A `rich.console.Console`.
    """
    found = Console()
    if found.is_terminal or found.is_jupyter:
        return found
    # COLUMNS may ask for more; less is the width of a terminal that isn't one.
    return Console(width=max(found.width, _COLUMNS_OF_A_FILE))
