"""Atomic file writes: a reader sees the old file or the complete new one.

A local file is renamed when it is complete; to an object store, a complete
local file is put.
"""

import contextlib
import os
import pathlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator

from kerasmgpu.errors import InputError
from kerasmgpu.stores.places import Place, place
from kerasmgpu.stores.store_path import StorePath

TEMPORARY = ".tmp-"
"""Prefix of the names of files that are not complete yet."""


@contextlib.contextmanager
def atomic_write(
    path: str | os.PathLike[str] | StorePath, several: bool = False
) -> Iterator[pathlib.Path]:
    """Context with a temporary path, renamed to `path` if the block succeeds.

    An existing file stays until then; an error in the block removes the
    temporary file.

    Args:
        path: Path-like, or a URL. The temporary path is in the same folder, or
            in one for temporary files, and has the same suffix, by which Keras
            and matplotlib choose a format.
        several: Whether several processes may write it at the same time. Each
            temporary file then has a name of its own, and one that a killed
            process left is not replaced by the next.

    Example:

    ```python
    with atomic_write("report.json") as temporary:
        temporary.write_text("{}")
    ```
    """
    path = place(path)
    if isinstance(path, StorePath):
        with tempfile.TemporaryDirectory() as folder:
            temporary = pathlib.Path(folder, path.name)
            yield temporary
            path.put(temporary)
        return
    writer = f"{uuid.uuid4().hex}-" if several else ""
    temporary = path.with_name(f"{TEMPORARY}{writer}{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C, too.
        discard(temporary)
        raise


def require_place(path: str | os.PathLike[str] | StorePath, name: str) -> None:
    """Creates the folder of a file that will be written.

    Args:
        name: String, the argument that has the path, for the message.

    Raises:
        InputError: If the folder can't be written, or `path` is a folder.
    """
    path = place(path)
    folder, reason = path.parent, None
    try:
        if isinstance(folder, StorePath):
            folder.require_writable()
        else:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror
    if reason is None and path.is_dir():
        reason = "Is a directory"
    if reason is None and not (
        isinstance(folder, StorePath) or os.access(folder, os.W_OK)
    ):
        reason = "Permission denied"
    if reason is not None:
        raise InputError(
            f"{name} must be a file in a folder that can be written to. "
            f"Received: {name}={str(path)!r} ({reason})"
        )


def require_folder(folder: Place, name: str) -> None:
    """Raises if a file is in a folder's place, or in that of one above it.

    Args:
        name: String, the argument that has the folder, for the message.

    Raises:
        InputError: If there is one.
    """
    if isinstance(folder, StorePath):
        return
    found = next(p for p in (folder, *folder.parents) if p.exists())
    if not found.is_dir():
        which = "which" if found == folder else f"and {found}"
        raise InputError(
            f"{name} must be a folder. Received: {name}={str(folder)!r}, "
            f"{which} is a file; give another one"
        )


def write_text(path: str | os.PathLike[str] | StorePath, text: str) -> None:
    """Writes or replaces a text file atomically, as UTF-8."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def discard(path: str | os.PathLike[str]) -> None:
    """Removes an incomplete file and frees its space at once.

    On a full disk HDF5 raises an error, keeps the file open, and writes the
    rest when it closes it. Without free space that crashes the process.

    Args:
        path: Path-like; need not exist.
    """
    # Suppressed, so that the error which ended the writing is raised.
    with contextlib.suppress(OSError):
        os.truncate(path, 0)
    with contextlib.suppress(OSError):
        os.unlink(path)


def discard_all(folder: str | os.PathLike[str], since: float) -> None:
    """Removes a process's incomplete files in a folder and its subfolders.

    Args:
        since: Time in seconds since the epoch at which the process started:
            older files are another process's, and stay.
    """
    where = place(folder)
    if isinstance(where, StorePath):
        return  # A store has complete files only.
    names = f"{TEMPORARY}*"
    for entry in [*where.glob(names), *where.glob(f"*/{names}")]:
        if entry.lstat().st_mtime < since:
            continue
        if entry.is_file():
            discard(entry)
            continue
        for file in filter(pathlib.Path.is_file, entry.rglob("*")):
            discard(file)
        shutil.rmtree(entry, ignore_errors=True)
