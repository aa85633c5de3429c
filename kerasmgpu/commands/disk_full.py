"""A command's message and cleanup on a full disk.

Libraries report a full disk in several ways: an `OSError` with its number,
HDF5's text with memory addresses, an error on closing a file after one on
writing it.
"""

import errno
import os
import pathlib
import re
import shutil

from kerasmgpu.commands import complete_files

_NUMBERS = {
    number: os.strerror(number)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
}
_TEXTS = tuple(_NUMBERS.values())
_FILE_IN_TEXT = re.compile(r"filename = '([^']*)'")


def message(error, folder=None):
    """Returns a one-line message, or `None` if a full disk is not the reason.

    Args:
        error: Exception; its causes are searched, too.
        folder: String, the command's output folder, named if the error names
            no file. Defaults to `None`.
    """
    reason = path = None
    while error is not None:
        text = str(error)
        reason = reason or _reason(error, text)
        named = _FILE_IN_TEXT.search(text)
        path = path or getattr(error, "filename", None)
        path = path or (named and named[1])
        error = error.__cause__ or error.__context__
    if reason is None:
        return None
    return (
        f"can't write {path or folder or 'a file'}: {reason}. Free some space, or "
        "choose another folder; what was complete before is still there"
    )


def _reason(error, text):
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return _NUMBERS[error.errno]
    return next((known for known in _TEXTS if known in text), None)


def remove_temporary(folder, since):
    """Removes the command's temporary files in a folder and its subfolders.

    Args:
        folder: Path of the command's output folder.
        since: Time in seconds since the epoch at which the command started:
            older files are another command's, and stay.
    """
    folder = pathlib.Path(folder)
    names = f"{complete_files.TEMPORARY}*"
    for entry in [*folder.glob(names), *folder.glob(f"*/{names}")]:
        if entry.lstat().st_mtime < since:
            continue
        if entry.is_file():
            complete_files.discard(entry)
            continue
        for file in filter(pathlib.Path.is_file, entry.rglob("*")):
            complete_files.discard(file)
        shutil.rmtree(entry, ignore_errors=True)
