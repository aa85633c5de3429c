"""JSON Lines files, readable after a kill of their writer at any moment."""

import json
import math
import os
import pathlib
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable
from concurrent import futures
from typing import IO, Any

from kerasmgpu import atomic_files
from kerasmgpu.errors import InputError
from kerasmgpu.stores.places import place
from kerasmgpu.stores.store_path import StorePath

_syncs = futures.ThreadPoolExecutor(1, "kerasmgpu-fsync")
"""Calls fsync in a thread; the process waits for all files before it ends."""


_SECONDS_BETWEEN_PUTS = 30.0
"""A store gets whole files, which grow: not one per sample of the devices."""


def parse(text: str) -> tuple[list[dict[str, Any]], list[int]]:
    """Parses JSON lines; leaves out a last line that is half written.

    Returns:
        The records, and the numbers of lines that are no JSON objects.
    """
    records, damaged = [], []
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif number < len(lines) or not line.startswith("{"):
            damaged.append(number)
    return records, damaged


class JsonLines:
    """Appends records to a JSON Lines file.

    One system call writes the records, and a thread calls fsync, which may take
    as long as several steps. An incomplete last line, from a full disk or a
    crash of the machine, is removed when the file is opened again.

    Object stores can't append. For a URL the file is kept in a temporary folder,
    and put whole before `append` returns.

    Args:
        path: String or path-like, or a URL. An existing file is appended to;
            missing folders are created.

    Raises:
        InputError: If the file exists and is not a JSON Lines file, or its
            folder can't be written to.
        OSError: If it can't be written for another reason.

    Example:

    ```python
    JsonLines("throughput.jsonl").append({"epoch": 0, "seconds": 1.5})
    ```
    """

    def __init__(self, path: str | os.PathLike[str] | StorePath) -> None:
        self.path = place(path)
        self._sync: futures.Future[None] | None = None
        atomic_files.require_place(self.path, "path")
        self._file = self._local_file()
        self._put_at: float | None = None
        with open(self._file, "ab+") as file:
            file.seek(0)
            first_line = file.readline()
            half_record = not first_line.endswith(b"\n") and (
                first_line.startswith(b"{") or not first_line
            )
            if not half_record and not _is_record(first_line):
                raise InputError(
                    f"{self.path} exists and is not a file of JSON lines. "
                    "Give another path, or move it away"
                )
            _drop_half_line(file)

    def _local_file(self) -> pathlib.Path:
        """Returns the file, or a copy of the store's."""
        if not isinstance(self.path, StorePath):
            return self.path
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        file = pathlib.Path(folder, self.path.name)
        if self.path.is_file():
            file.write_bytes(self.path.read_bytes())
        return file

    def keep(self, is_kept: Callable[[dict[str, Any]], bool]) -> None:
        """Removes the records for which a function is false, atomically."""
        text = self._file.read_text("utf-8")
        kept = "".join(
            line
            for line in text.splitlines(keepends=True)
            if is_kept(json.loads(line))
        )
        if kept != text:
            atomic_files.write_text(self._file, kept)
            self._put(always=True)

    def append(self, *records: dict[str, Any], sync: bool = True) -> None:
        """Writes dictionaries as lines, all at once; NaN becomes `null`.

        Args:
            sync: Boolean, whether a thread calls fsync: without it, a crash of
                the machine may lose the lines. A store gets them at the latest
                when 30 seconds have passed, or by `close`. Defaults to `True`.

        Raises:
            OSError: If the lines can't be written or, with `sync`, if the
                fsync of an earlier call failed; its end is awaited first.
        """
        lines = [
            json.dumps(_without_nan(one), allow_nan=False) for one in records
        ]
        with open(self._file, "ab", buffering=0) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
            if isinstance(self.path, StorePath):
                self._put(always=sync)
                return
            if not sync:
                return
            before, self._sync = self._sync, None
            if before is not None:
                before.result()
            self._sync = _syncs.submit(_store, os.dup(file.fileno()))

    def close(self) -> None:
        """Puts lines that a store hasn't got yet."""
        if self._put_at is not None:
            self._put(always=True)

    def _put(self, always: bool) -> None:
        """Puts the file into its store, unless it is too early for it."""
        if not isinstance(self.path, StorePath):
            return
        now = time.monotonic()
        if self._put_at is None:
            self._put_at = now + _SECONDS_BETWEEN_PUTS
        if always or now >= self._put_at:
            self.path.put(self._file)
            self._put_at = None


def _store(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _without_nan(record: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and math.isnan(value) else value
        for key, value in record.items()
    }


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _drop_half_line(file: IO[bytes]) -> None:
    """Removes an incomplete last line; ends a complete one with a newline."""
    file.seek(0)
    content = file.read()
    complete = content.rfind(b"\n") + 1
    if complete == len(content):
        return
    if _is_record(content[complete:]):
        file.write(b"\n")
    else:
        file.truncate(complete)
