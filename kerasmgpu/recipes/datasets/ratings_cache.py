"""A cache of parsed ratings, as Parquet files."""

import glob
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
    """The parsed form of the file `source`, in its present state.

    A cached file's name has hashes of the source's path and state, and a
    checksum of the file's own bytes, since Parquet has none.
    """

    def __init__(self, folder: Path, source: Path) -> None:
        self._source = source.resolve()
        self._folder = folder / "parsed"
        path = os.fsencode(self._source)
        self._name = f"{source.stem}-{hashlib.sha256(path).hexdigest()[:16]}-"
        # Before parsing, so that a change during parsing is noticed.
        status = source.stat()
        size, time = status.st_size, status.st_mtime_ns
        self._state = f"{_PARSER_VERSION}-{size}-{time}-"

    def read(self) -> pl.DataFrame | None:
        """The table that `write` stored, or `None` if it is missing or damaged."""
        for path in self._files(self._state):
            reason = "its checksum differs"
            try:
                content = path.read_bytes()
                if path.stem.endswith(f"-{zlib.crc32(content):08x}"):
                    return pl.read_parquet(content)
            except OSError as error:
                reason = str(error)
            logging.warning(
                f"Cached ratings in {path} can't be used ({reason}); parsing "
                f"{self._source} again."
            )
        return None

    def write(self, table: pl.DataFrame) -> None:
        """Replaces the cached table atomically; warns if it can't be written."""
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
                "Parsed ratings are not cached, so the next start parses "
                f"{self._source} again: {error}. $KERASMGPU_CACHE names another "
                "folder."
            )

    def _files(self, state: str = "") -> list[Path]:
        """The source's cached files, of one state or of any."""
        return list(self._folder.glob(glob.escape(self._name + state) + "*"))
