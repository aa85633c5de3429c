"""Keeps parsed ratings on disk as Parquet files."""

import hashlib
import os
import tempfile
import zlib
from pathlib import Path

import polars as pl
from absl import logging

# Raise it when the same file would be parsed to something else.
_PARSER_VERSION = 2


class RatingsCache:
    """The parsed form of the file `source`, in its state of now.

    A file's name tells the source's path and state; behind it is the checksum
    of the file's bytes, which Parquet doesn't have.
    """

    def __init__(self, folder, source):
        self._source = source.resolve()
        self._folder = folder / "parsed"
        path = os.fsencode(self._source)
        self._name = f"{source.stem}-{hashlib.sha256(path).hexdigest()[:16]}-"
        # Before it is parsed: then a change during parsing shows.
        status = source.stat()
        self._state = (
            f"{_PARSER_VERSION}-{status.st_size}-{status.st_mtime_ns}-"
        )

    def read(self):
        """The table of `write`; `None` without one, or without a whole one."""
        for path in self._files(self._state):
            try:
                content = path.read_bytes()
                if path.stem.endswith(f"-{zlib.crc32(content):08x}"):
                    return pl.read_parquet(content)
                reason = "its checksum differs"
            except OSError as error:
                reason = error
            logging.warning(
                "Cached ratings in %s can't be used (%s); parsing %s again.",
                path,
                reason,
                self._source,
            )
        return None

    def write(self, table):
        """Stores a table atomically, in place of those of earlier states.

        Where it can't be written, a line says so.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
                new = Path(scratch, "new")
                table.write_parquet(new)
                checksum = zlib.crc32(new.read_bytes())
                for old in self._files():
                    old.unlink(missing_ok=True)
                name = f"{self._name}{self._state}{checksum:08x}.parquet"
                new.rename(self._folder / name)
        except OSError as error:
            logging.warning(
                "Parsed ratings are not cached, so the next start parses %s "
                "again: %s. $KERASMGPU_CACHE names another folder.",
                self._source,
                error,
            )

    def _files(self, state=""):
        """Paths of the source's files, of one state or of any."""
        begin = self._name + state
        if not self._folder.is_dir():
            return []
        return [p for p in self._folder.iterdir() if p.name.startswith(begin)]
