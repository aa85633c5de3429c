"""Paths of users: local ones, and URLs of object stores."""

import atexit
import functools
import os
import pathlib
import shutil
import sys
import tempfile
from typing import IO, Any, TypeAlias

from kerasmgpu.errors import URL, URL_WITH_ONE_SLASH, InputError, shown
from kerasmgpu.stores.store_path import StorePath, system_of

Place: TypeAlias = pathlib.Path | StorePath
"""A file or folder, local or in an object store."""


def place(path: str | os.PathLike[str] | StorePath) -> Place:
    """Returns a `pathlib.Path`, or a `StorePath` of a URL.

    Raises:
        InputError: If a slash of the URL is missing.

    Example:

    >>> place("runs/1"), place("s3://bucket/runs/1")
    (PosixPath('runs/1'), StorePath('s3://bucket/runs/1'))
    """
    if isinstance(path, StorePath):
        return path
    text = os.fspath(path)
    if text.startswith("file://"):
        return pathlib.Path(text.removeprefix("file://"))
    if found := URL.fullmatch(text):
        if not found[1].strip("/"):
            raise InputError(
                "a URL names a bucket and a path, such as s3://bucket/runs/1. "
                f"Received: {text!r}"
            )
        return StorePath(text)
    if found := URL_WITH_ONE_SLASH.fullmatch(text):
        url = f"{found[1]}://{found[2]}"
        raise InputError(
            f"a URL has two slashes, which pathlib.Path makes one of: pass the "
            f"string {url!r}. Received: {text!r}"
        )
    return pathlib.Path(path)


def checked_place(value: Any, name: str) -> Place:
    """Returns the place of an argument.

    Raises:
        InputError: If it is neither a string nor path-like, or is empty; of a
            URL, if no package for it is installed, or a slash is missing.
    """
    if isinstance(value, (str, os.PathLike, StorePath)) and str(value):
        try:
            found = place(value)
            if isinstance(found, StorePath):
                system_of(str(found))
            return found
        except InputError as error:
            raise InputError(f"{name}: {error}") from error.__cause__
    raise InputError(
        f"{name} must be a path, such as 'runs/1', or a URL, such as "
        f"'s3://bucket/runs/1'. Received: {name}={shown(value)}"
    )


@functools.cache
def local_copy(path: str) -> str:
    """Returns a path; of a URL, that of a local copy.

    Files and folders are copied once, and deleted when the process ends.

    Raises:
        InputError: If it can't be read.
    """
    found = place(path)
    if not isinstance(found, StorePath):
        return str(found)
    print(f"copying {found}", file=sys.stderr, flush=True)
    folder = tempfile.mkdtemp(prefix="kerasmgpu-data-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = pathlib.Path(folder, found.name)
    try:
        found.get(copy)
    except OSError as error:
        raise InputError(f"{path} can't be copied: {error.strerror}") from error
    return str(copy)


def opened(path: Place) -> IO[bytes]:
    """Opens a file for reading; of a store, a local copy, which has a number."""
    return path.open() if isinstance(path, StorePath) else open(path, "rb")


def peeked(path: Place) -> IO[bytes]:
    """Opens a file of which little is read, such as its manifest."""
    return path.peek() if isinstance(path, StorePath) else open(path, "rb")


def num_bytes(path: Place) -> int:
    """Returns a file's size."""
    if isinstance(path, StorePath):
        return path.num_bytes()
    return path.stat().st_size
