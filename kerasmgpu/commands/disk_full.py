"""What a command says and leaves when nothing more can be written.

Libraries tell it in many ways: an `OSError` with its number, HDF5's own text
with addresses in memory, an error at closing a file after an error at writing.
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
    """One line for people, or `None` where the disk is not the reason.

    Args:
        error: Exception, with what it came from.
        folder: String, where the command writes, told where the error names no
            file. Defaults to `None`.
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
    """Removes what a command has begun to write in a folder.

    Args:
        folder: Path, the folder of a run; its own folders may be those of
            runs, too.
        since: Time in seconds since the epoch at which the command started:
            what is older is not its own.
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
