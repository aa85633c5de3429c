"""`StorePath`: a file in an object store, with the methods of `pathlib.Path`.

A file is put whole from a local copy, and got whole into one: stores replace an
object atomically, but neither append nor rename. Transient errors are tried
again.
"""

import contextlib
import errno
import fnmatch
import io
import os
import pathlib
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

from absl import logging

from kerasmgpu.errors import InputError, one_line

_Result = TypeVar("_Result")


_PROBE = ".tmp-probe-"

_PEEKED = 1 << 20
"""Bytes that are got at once of a file of which little is read."""

_WAITS = 1.0, 2.0, 4.0
"""Seconds before each further try, after those of the store's own client."""


class StorePath:
    """A file, or all files below a prefix, in an object store.

    Whether a file exists is asked of the store by its name, not of a listing,
    which may be late.

    Args:
        url: String such as `"s3://bucket/runs/1"`.

    Raises:
        InputError: In methods that ask the store, if no package for it is
            installed.
        OSError: In these, if the store can't be reached or refuses.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"StorePath({self._url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and self._url == other._url

    def __hash__(self) -> int:
        return hash(self._url)

    def __lt__(self, other: "StorePath") -> bool:
        return self._url < other._url

    def __truediv__(self, name: str) -> "StorePath":
        return self if name == "." else StorePath(f"{self._url}/{name}")

    @property
    def name(self) -> str:
        return self._url.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return pathlib.PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        return pathlib.PurePosixPath(self.name).suffix

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self._url.split("/"))

    @property
    def parent(self) -> "StorePath":
        head = self._url.rpartition("/")[0]
        return self if head.endswith(":/") else StorePath(head)

    def with_name(self, name: str) -> "StorePath":
        return self.parent / name

    def absolute(self) -> "StorePath":
        return self

    def resolve(self) -> "StorePath":
        return self

    def exists(self) -> bool:
        return self._info() is not None

    def is_file(self) -> bool:
        info = self._info()
        return info is not None and info["type"] == "file"

    def is_dir(self) -> bool:
        info = self._info()
        return info is not None and info["type"] != "file"

    def num_bytes(self) -> int:
        """Returns a file's size."""
        info = self._info()
        if info is None:
            raise _error(FileNotFoundError(), self._url)
        return int(info["size"])

    def iterdir(self) -> Iterator["StorePath"]:
        """Yields what is listed; nothing, if there is no such prefix."""

        def listed(system: Any, path: str) -> list[str]:
            found = [one.rstrip("/") for one in system.ls(path, detail=False)]
            # Some stores list an empty object for the prefix itself.
            return [one for one in found if one != path.rstrip("/")]

        with contextlib.suppress(FileNotFoundError):
            for one in sorted(set(self._tried(listed))):
                yield self / one.rpartition("/")[2]

    def glob(self, pattern: str) -> Iterator["StorePath"]:
        """Yields what matches a pattern of one level; `"*/"` are folders."""
        for path in self.iterdir():
            if fnmatch.fnmatchcase(path.name, pattern.rstrip("/")):
                if not pattern.endswith("/") or path.is_dir():
                    yield path

    def read_bytes(self) -> bytes:
        return self._tried(lambda system, path: system.cat_file(path))

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def put(self, file: str | os.PathLike[str]) -> None:
        """Writes or replaces this file by a local one, whole or not at all."""
        source = os.fspath(file)
        self._tried(lambda system, path: system.put_file(source, path))

    def get(self, target: pathlib.Path) -> None:
        """Copies this file, or all files of this folder, to a local path."""

        def copy(system: Any, path: str) -> None:
            files = system.find(path)
            if not files:
                raise FileNotFoundError(errno.ENOENT, "No such file", path)
            for file in files:
                local = target / file[len(path) :].lstrip("/")
                local.parent.mkdir(parents=True, exist_ok=True)
                system.get_file(file, str(local))

        self._tried(copy)

    def write_bytes(self, data: bytes) -> None:
        self._tried(lambda system, path: system.pipe_file(path, data))

    def open(self) -> IO[bytes]:
        """Returns a local, temporary copy, open for reading."""
        with tempfile.NamedTemporaryFile() as copy:
            self._tried(lambda system, path: system.get_file(path, copy.name))
            return open(copy.name, "rb")

    def peek(self) -> IO[bytes]:
        """Returns the file, of which only what is read is got."""
        return io.BufferedReader(_Ranges(self), _PEEKED)

    def read_range(self, start: int, end: int) -> bytes:
        return self._tried(
            lambda system, path: system.cat_file(path, start=start, end=end)
        )

    def rename(self, target: "StorePath") -> None:
        """Copies a file, or the files of a folder, then deletes the former."""
        if self.is_dir():
            for path in self.iterdir():
                path.rename(target / path.name)
            return

        def copy(system: Any, path: str) -> None:
            system.cp_file(path, system._strip_protocol(str(target)))

        self._tried(copy)
        self.unlink()

    def unlink(self) -> None:
        """Deletes a file; need not exist."""
        with contextlib.suppress(FileNotFoundError):
            self._tried(lambda system, path: system.rm_file(path))

    def remove_files(self) -> None:
        """Deletes the files of a folder."""
        for path in self.iterdir():
            path.unlink()

    @contextlib.contextmanager
    def probe(self) -> Iterator["StorePath"]:
        """Context with an empty file in this folder; raises `OSError`."""
        file = self / f"{_PROBE}{uuid.uuid4().hex}"
        file.write_bytes(b"")
        try:
            yield file
        finally:
            file.unlink()

    def require_writable(self) -> None:
        """Writes and deletes a file in this folder; raises `OSError`."""
        with self.probe():
            pass

    def _info(self) -> dict[str, Any] | None:
        try:
            return self._tried(lambda system, path: system.info(path))
        except FileNotFoundError:
            return None

    def _tried(self, function: Callable[[Any, str], _Result]) -> _Result:
        """Calls a function of a file system and a path, again if it fails."""
        for wait in _WAITS:
            try:
                return self._called(function)
            except (FileNotFoundError, PermissionError):
                raise
            except OSError as error:
                logging.warning(
                    "%s: %s; it is tried again in %g s.",
                    self._url,
                    error.strerror,
                    wait,
                )
            time.sleep(wait)
        return self._called(function)

    def _called(self, function: Callable[[Any, str], _Result]) -> _Result:
        system, path = system_of(self._url)
        try:
            system.invalidate_cache()  # Other workers write, too.
            return function(system, path)
        except Exception as error:  # Each store's client has kinds of its own.
            raise _error(error, self._url) from error


class _Ranges(io.RawIOBase):
    """A file of a store that is read range by range."""

    def __init__(self, path: StorePath) -> None:
        self._path, self._size, self._at = path, path.num_bytes(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        before = {os.SEEK_CUR: self._at, os.SEEK_END: self._size}
        self._at = before.get(whence, 0) + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        data = self._path.read_range(self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def system_of(url: str) -> tuple[Any, str]:
    """Returns fsspec's file system for a URL, and the path there.

    Raises:
        InputError: If no package for it is installed.
    """
    scheme = url.partition("://")[0]
    try:
        from fsspec.core import url_to_fs

        return url_to_fs(url)
    except ImportError as error:
        raise InputError(
            f"{scheme}:// needs a package that isn't installed ({error}): pip "
            f'install "kerasmgpu[stores]" has those of s3:// and gs://. '
            f"Received: {url}"
        ) from error
    except ValueError as error:
        raise InputError(
            f"{scheme}:// is no store that fsspec knows ({error}): expected a "
            f"local path, or s3://BUCKET/… or gs://BUCKET/…. Received: {url}"
        ) from error


def _error(error: Exception, url: str) -> OSError:
    """Returns an exception of a store's client as an `OSError` with its text."""
    number = errno.EIO
    if isinstance(error, FileNotFoundError):
        number = errno.ENOENT
    elif isinstance(error, PermissionError):
        number = errno.EACCES
    elif isinstance(error, OSError):  # Perhaps the disk of a copy is full.
        number = error.errno or number
    text = one_line(error) or os.strerror(number)
    if not isinstance(error, OSError):
        text = f"{type(error).__name__}: {text}"
    return OSError(number, text, url)
