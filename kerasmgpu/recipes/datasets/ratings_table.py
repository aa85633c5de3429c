"""Parses one ratings file, in every form that MovieLens is published in."""

from typing import NamedTuple

import polars as pl

from kerasmgpu.errors import InputError

# Highest rating on any star or points scale that we know of. The lowest is
# above 0, because 0 stands for "not rated" in rows of ratings.
_HIGHEST_RATING = 10

# A block is parsed by all threads of polars at once, and only one is in
# memory: this bounds what a file or a zip of any size takes.
_BLOCK_BYTES = 32 << 20

# What is longer can't be a rating, and is not read to its end to find out.
_LONGEST_LINE = 1 << 16

_HEADER = ["userid", "movieid", "rating"]
_COLUMNS = {
    "user": pl.Int32,
    "item": pl.Int32,
    "rating": pl.Float32,
    "timestamp": pl.Int64,
}


class _Form(NamedTuple):
    separator: str
    num_fields: int
    has_header: bool


def parse(stream, name, block_bytes=_BLOCK_BYTES):
    """Parses all lines of a ratings file.

    The first line decides the form: fields separated by `::`, a tab or a
    comma, in the order user, item, rating and (where there is one) time stamp;
    a header `userId,movieId,rating,timestamp` may come first. Every line must
    be a rating. Empty lines at the end of the file and an empty field at the
    end of a line are ignored.

    Args:
        stream: Binary file object, read once from its start.
        name: What messages call the file.
        block_bytes: Bytes to parse at a time.

    Returns:
        `polars.DataFrame` of `user`, `item` (Int32, ids as in the file) and
        `rating` (Float32), and the 1-based number of the line of row 0.
    """
    first = stream.readline(_LONGEST_LINE)
    if not first:
        raise InputError(f"{name} is empty; expected one rating per line.")
    # Windows' editors start UTF-8 files with a byte order mark.
    first = first.removeprefix(b"\xef\xbb\xbf")
    form = _form(first, name)
    first_line = 2 if form.has_header else 1
    begin = b"" if form.has_header else first
    tables = []
    line = first_line
    while block := _next_block(stream, begin, block_bytes):
        table = _parse_block(block, form, name, line)
        line += len(table)
        tables.append(table)
        begin = b""
    if line == first_line:
        raise InputError(
            f"{name} has no ratings; expected one per line after the header."
        )
    return pl.concat(tables, rechunk=True), first_line


def _form(first, name):
    text = first.decode("utf-8", "replace").strip()
    for separator in ("::", "\t", ","):
        fields = text.split(separator)
        if 3 <= len(fields) <= 4:
            has_header = [field.lower() for field in fields[:3]] == _HEADER
            return _Form(separator, len(fields), has_header)
    raise InputError(
        f"Line 1 of {name} is not a rating. Received: {_shorten(first)}; "
        "expected user, item, rating and optionally a time stamp, separated "
        "by '::' (ml-1m, ml-10m), a tab (ml-100k) or a comma (all others)."
    )


def _next_block(stream, begin, block_bytes):
    """Returns `begin` and more lines, whole ones; nothing after the last."""
    chunk = stream.read(block_bytes)
    block = begin + chunk
    if len(chunk) < block_bytes:
        # The end of the file, where empty lines are harmless.
        return block.rstrip(b"\r\n")
    if not block.endswith(b"\n"):
        block += stream.readline(_LONGEST_LINE)
    return block


def _parse_block(block, form, name, line):
    """Parses whole lines, of which the first is line `line` of the file."""
    if not block.isascii():
        # polars may refuse the whole block; ratings are ASCII anyway.
        lines = block.split(b"\n")
        wrong = next(i for i, text in enumerate(lines) if not text.isascii())
        raise _not_a_rating(block, wrong, form, name, line)
    names = list(_COLUMNS)[: form.num_fields]
    separator = "\t" if form.separator == "::" else form.separator
    # polars separates by one character only; ratings have no tabs otherwise.
    body = block.replace(b"::", b"\t") if form.separator == "::" else block
    header = separator.join([*names, "surplus"]).encode()
    # A field that doesn't parse or is absent becomes null, and fields beyond
    # the expected ones make the surplus column non-null: the row that is wrong
    # is found without a second pass over the text.
    table = pl.read_csv(
        b"\n".join([header, body]),
        separator=separator,
        quote_char=None,
        schema_overrides={
            **{column: _COLUMNS[column] for column in names},
            "surplus": pl.String,
        },
        ignore_errors=True,
        truncate_ragged_lines=True,
    )
    rating = pl.col("rating")
    is_rating = (
        (pl.col("user") >= 0)
        & (pl.col("item") >= 0)
        # For polars NaN is the greatest number: the upper bound catches it.
        & (rating > 0)
        & (rating <= _HIGHEST_RATING)
        & pl.col(names[-1]).is_not_null()
        & pl.col("surplus").is_null()
    )
    # Comparisons with null are null, hence the fill.
    is_wrong = table.select(wrong=~is_rating.fill_null(False))["wrong"]
    if is_wrong.any():
        raise _not_a_rating(block, is_wrong.arg_max(), form, name, line)
    return table.select("user", "item", "rating")


def _not_a_rating(block, index, form, name, line):
    text = block.split(b"\n", index + 1)[index]
    fields = ["user", "item", "rating", "timestamp"][: form.num_fields]
    return InputError(
        f"Line {line + index} of {name} is not a rating. Received: "
        f"{_shorten(text)}; expected {form.separator.join(fields)!r} with ids "
        f"from 0 to {2**31 - 1} and a rating above 0 and at most "
        f"{_HIGHEST_RATING}. Mend the line, or bring the file anew."
    )


def _shorten(line):
    text = line.decode("utf-8", "backslashreplace").rstrip("\r\n")
    return repr(text if len(text) <= 60 else text[:60] + "…")
