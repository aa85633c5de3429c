"""A ratings file as a table: parsed in every form of MovieLens, and cached."""

import glob
import hashlib
import os
import tempfile
import zlib
from pathlib import Path
from typing import IO, NamedTuple

import polars as pl
from absl import logging

from kerasmgpu.errors import InputError

# Highest rating on any star or points scale that we know of. The lowest is
# above 0, because 0 stands for "not rated" in rows of ratings.
_HIGHEST_RATING = 10

# polars parses a block with all threads; only one is in memory: this bounds
# the memory for files and zips of any size.
_BLOCK_BYTES = 32 << 20

# A longer line can't be a rating and isn't read to its end.
_LONGEST_LINE = 1 << 16

# Raise it when the same file would be parsed to something else.
_PARSER_VERSION = 2

_HEADER = ["userid", "movieid", "rating"]
_COLUMNS = {
    "user": pl.Int32,
    "item": pl.Int32,
    "rating": pl.Float32,
    "timestamp": pl.Int64,
}


class _Form(NamedTuple):
    separator: str
    fields: list[str]
    has_header: bool


def parse(
    stream: IO[bytes], name: str, block_bytes: int = _BLOCK_BYTES
) -> tuple[pl.DataFrame, int]:
    """Parses all lines of a ratings file, which messages call `name`.

    The first line decides the form: fields separated by `::`, a tab or a
    comma, in the order user, item, rating and optionally a time stamp; a
    header `userId,movieId,rating,timestamp` may come first. Every line must
    be a rating. Empty lines at the end of the file and an empty field at the
    end of a line are ignored.

    Returns a table of `user`, `item` (Int32, ids as in the file) and `rating`
    (Float32), and the 1-based number of the line of row 0.
    """
    first = stream.readline(_LONGEST_LINE)
    if not first:
        raise InputError(f"{name} is empty; expected one rating per line.")
    # Windows' editors start UTF-8 files with a byte order mark.
    first = first.removeprefix(b"\xef\xbb\xbf")
    form = _form(first, name)
    line = first_line = 2 if form.has_header else 1
    begin = b"" if form.has_header else first
    tables = []
    while block := _next_block(stream, begin, block_bytes):
        table, wrong = _parse_block(block, form)
        if wrong is not None:
            text = block.split(b"\n", wrong + 1)[wrong]
            raise InputError(
                f"Line {line + wrong} of {name} is not a rating. Received: "
                f"{_shorten(text)}; expected "
                f"{form.separator.join(form.fields)!r} with ids from 0 to "
                f"{2**31 - 1} and a rating above 0 and at most "
                f"{_HIGHEST_RATING}. Fix the line, or fetch the file again."
            )
        tables.append(table)
        line += len(table)
        begin = b""
    if not tables:
        raise InputError(
            f"{name} has no ratings; expected one per line after the header."
        )
    return pl.concat(tables, rechunk=True), first_line


def _form(first: bytes, name: str) -> _Form:
    text = first.decode("utf-8", "replace").strip()
    for separator in ("::", "\t", ","):
        found = text.lower().split(separator)
        if 3 <= len(found) <= 4:
            fields = list(_COLUMNS)[: len(found)]
            return _Form(separator, fields, found[:3] == _HEADER)
    raise InputError(
        f"Line 1 of {name} is not a rating. Received: {_shorten(first)}; "
        "expected user, item, rating and optionally a time stamp, separated "
        "by '::' (ml-1m, ml-10m), a tab (ml-100k) or a comma (all others)."
    )


def _next_block(stream: IO[bytes], begin: bytes, block_bytes: int) -> bytes:
    """Returns `begin` and the lines after it; empty at the end of the file."""
    chunk = stream.read(block_bytes)
    block = begin + chunk
    if len(chunk) < block_bytes:
        # Empty lines at the end of the file are harmless.
        return block.rstrip(b"\r\n")
    if not block.endswith(b"\n"):
        block += stream.readline(_LONGEST_LINE)
    return block


def _parse_block(block: bytes, form: _Form) -> tuple[pl.DataFrame, int | None]:
    """Parses whole lines; also returns the row of the first wrong one."""
    if not block.isascii():
        # polars may refuse the whole block; ratings are ASCII anyway.
        ascii_lines = map(bytes.isascii, block.split(b"\n"))
        return pl.DataFrame(), list(ascii_lines).index(False)
    separator = form.separator
    if separator == "::":
        # polars takes one character; ratings have no tabs otherwise.
        separator, block = "\t", block.replace(b"::", b"\t")
    # A field that is absent or doesn't parse becomes null, and further fields
    # make `surplus` non-null: one pass finds the wrong row.
    types = {name: _COLUMNS[name] for name in form.fields}
    types["surplus"] = pl.String
    table = pl.read_csv(
        separator.join(types).encode() + b"\n" + block,
        separator=separator,
        quote_char=None,
        schema_overrides=types,
        ignore_errors=True,
        truncate_ragged_lines=True,
    )
    rating = pl.col("rating")
    is_rating = (
        (pl.col("user") >= 0)
        & (pl.col("item") >= 0)
        # For polars NaN is the greatest number: the upper bound excludes it.
        & (rating > 0)
        & (rating <= _HIGHEST_RATING)
        & pl.col(form.fields[-1]).is_not_null()
        & pl.col("surplus").is_null()
    )
    # Comparisons with null are null, hence the fill.
    is_wrong = table.select(wrong=~is_rating.fill_null(False))["wrong"]
    wrong = is_wrong.arg_max() if is_wrong.any() else None
    return table.select("user", "item", "rating"), wrong


def _shorten(line: bytes) -> str:
    text = line.decode("utf-8", "backslashreplace").rstrip("\r\n")
    return repr(text if len(text) <= 60 else text[:60] + "…")


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
