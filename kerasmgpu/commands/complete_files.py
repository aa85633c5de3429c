"""Files that are there whole or not at all, whatever ends the process."""

import contextlib
import os
import pathlib

TEMPORARY = ".tmp-"
"""Names of files that are not complete yet begin with it."""


@contextlib.contextmanager
def complete(path):
    """Context with a path beside, which becomes `path` if the block ends well.

    What is at `path` before stays till then; an error in the block removes what
    it has begun.

    Args:
        path: Path-like. The path beside keeps its ending, by which Keras and
            matplotlib choose a format.

    Example:

    ```python
    with complete("report.json") as temporary:
        temporary.write_text("{}")
    ```
    """
    path = pathlib.Path(path)
    temporary = path.with_name(TEMPORARY + path.name)
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C too leaves no half file.
        discard(temporary)
        raise


def discard(path):
    """Removes a file that was begun, and gives its space back at once.

    On a full disk HDF5 has the file still open after its error, and writes the
    rest when it is closed: that must find space, or the process ends in HDF5's
    crash.

    Args:
        path: `pathlib.Path`; nothing need be there.
    """
    # What ended the writing is the error to tell, not what follows from it.
    with contextlib.suppress(OSError):
        os.truncate(path, 0)
    with contextlib.suppress(OSError):
        path.unlink()
