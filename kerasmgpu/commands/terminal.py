"""The console for tables."""

from rich.console import Console

_COLUMNS_OF_A_FILE = 140


def console():
    """Returns a console: of the terminal's width, or wide for a file or pipe.

    Returns:
        A `rich.console.Console`.
    """
    found = Console()
    if found.is_terminal or found.is_jupyter:
        return found
    # COLUMNS may ask for more; less would only be a terminal's limit.
    return Console(width=max(found.width, _COLUMNS_OF_A_FILE))
