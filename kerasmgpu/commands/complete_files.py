"""Atomic file writes: a reader sees the old file or the complete new one."""

import contextlib
import os
import pathlib

TEMPORARY = ".tmp-"
"""Prefix of the names of files that are not complete yet."""


@contextlib.contextmanager
def complete(path):
    """Context with a temporary path, renamed to `path` if the block succeeds.

    An existing file stays until then; an error in the block removes the
    temporary file.

    Args:
        path: Path-like. The temporary path is in the same folder and has the
            same suffix, by which Keras and matplotlib choose a format.

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
    except BaseException:  # Ctrl-C, too.
        discard(temporary)
        raise


def discard(path):
    """Removes an incomplete file and frees its space at once.

    On a full disk HDF5 keeps the file open after its error and writes the rest
    on closing it: without free space HDF5 then crashes the process.

    Args:
        path: `pathlib.Path`; need not exist.
    """
    # Suppressed, so that the error which ended the writing is raised.
    with contextlib.suppress(OSError):
        os.truncate(path, 0)
    with contextlib.suppress(OSError):
        path.unlink()
