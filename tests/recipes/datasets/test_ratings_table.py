"""Files of ratings are parsed strictly, and cached while they stay as they are."""

import io
import logging
import os

import numpy as np
import polars as pl
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import ratings_table
from kerasmgpu.recipes.datasets.ratings_table import RatingsCache

HEADER = b"userId,movieId,rating,timestamp\n"


def parse(text, **arguments):
    return ratings_table.parse(io.BytesIO(text), "a file", **arguments)


@pytest.mark.parametrize(
    "text",
    [
        b"1\t20\t3\t881250949\n4\t50\t6\t891717742\n",
        b"1::20::3::978300760\n4::50::6::978302109\n",
        HEADER + b"1,20,3.0,964982703\n4,50,6.0,964981247\n",
        HEADER.replace(b"\n", b"\r\n") + b"1,20,3.0,9\r\n4,50,6.0,9\r\n",
        b"\xef\xbb\xbf" + HEADER + b"1,20,3.0,9\n4,50,6.0,9",
        b"\xef\xbb\xbf1,20,3,9\n4,50,6,9",
        b"1,20,3\n4,50,6\n",
        b"userId,movieId,rating\n1,20,3\n4,50,6\n\n\n",
        b"1,20,3,9\r\n4,50,6,9\r\n\r\n",
    ],
)
@pytest.mark.parametrize("block_bytes", [8, 40, 1 << 20])
def test_published_forms(text, block_bytes):
    table, first_line = parse(text, block_bytes=block_bytes)
    assert table.rows() == [(1, 20, 3.0), (4, 50, 6.0)]
    assert table.dtypes == [pl.Int32, pl.Int32, pl.Float32]
    assert first_line == (2 if b"userId" in text else 1)


def test_half_stars_and_the_bounds_of_the_scale():
    table, _ = parse(b"0,0,0.5,1\n2147483647,3,10,1\n1,2,4.5,-1\n")
    assert table["rating"].to_list() == [0.5, 10, 4.5]
    assert table["user"].to_list() == [0, 2**31 - 1, 1]


def test_many_blocks_are_joined_in_order():
    numbers = np.arange(5000)
    text = b"".join(b"%d::%d::%d::9\n" % (n, n + 1, n % 5 + 1) for n in numbers)
    table, _ = parse(text, block_bytes=1000)
    np.testing.assert_array_equal(table["user"], numbers)
    np.testing.assert_array_equal(table["item"], numbers + 1)
    np.testing.assert_array_equal(table["rating"], numbers % 5 + 1)


WRONG_LINES = [
    b"1,2,good,9",  # not a number
    b"x,2,3,9",
    b"1.5,2,3,9",  # an id with a fraction
    b"1,2,3,later",
    b"-1,2,3,9",  # ids below 0
    b"1,-2,3,9",
    b"2147483648,2,3,9",  # an id beyond int32
    b"1,2,nan,9",  # not finite
    b"1,2,inf,9",
    b"1,2,0,9",  # 0 means "not rated"
    b"1,2,-3,9",
    b"1,2,10.5,9",
    b"1,2,3",  # too few and too many fields
    b"1,2,3,9,9",
    b"1;2;3;9",
    b"1::2::3::9",
    b"",  # an empty line before the end
    b"  ",
    b",,,",
    b"# a comment",
    b'"1","2","3","9"',
    b"1,2,3,9\x00",
    "1,2,½,9".encode(),
    b"\xff\xfe1,2,3,9",
]


@pytest.mark.parametrize("wrong", WRONG_LINES)
@pytest.mark.parametrize("block_bytes", [10, 1 << 20])
def test_a_line_that_is_not_a_rating_is_named(wrong, block_bytes):
    good = b"1,2,3,9\n"
    text = HEADER + 5 * good + wrong + b"\n" + 5 * good
    with pytest.raises(InputError) as error:
        parse(text, block_bytes=block_bytes)
    message = str(error.value)
    assert message.startswith("Line 7 of a file is not a rating.")
    assert repr(wrong.decode("utf-8", "backslashreplace")) in message
    assert "\n" not in message


def test_wrong_last_line():
    for wrong in filter(None, WRONG_LINES):
        with pytest.raises(InputError, match="Line 3 of a file is not a rat"):
            parse(HEADER + b"1,2,3,9\n" + wrong)


def test_first_of_several_wrong_lines_is_named():
    with pytest.raises(InputError, match="Line 2 of a file"):
        parse(b"1,2,3,9\n1,2,x,9\n1,2,\xff,9\n".replace(b"\xff", b"y"))


def test_wrong_line_of_double_colons_is_shown_as_it_is():
    with pytest.raises(InputError, match="Line 2.*'1::x::3::9'.*::timestamp"):
        parse(b"1::2::3::9\n1::x::3::9\n")


def test_long_line_is_shortened():
    with pytest.raises(InputError, match="Line 2 of") as error:
        parse(b"1,2,3,9\n" + b"7" * 300_000, block_bytes=100)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    "text, message",
    [
        (b"", "a file is empty"),
        (HEADER, "a file has no ratings"),
        (b"movieId,title,genres\n1,2,3,9\n", "Line 1 of a file is not a rat"),
        (b"\n1,2,3,9\n", "Line 1 of a file is not a rating"),
        (b"a,b,c,d,e\n1,2,3,9\n", "Line 1 of a file is not a rating"),
    ],
)
def test_files_of_something_else(text, message):
    with pytest.raises(InputError, match=message):
        parse(text)


TABLE = pl.DataFrame(
    {"user": [1, 2], "item": [7, 7], "rating": [3.5, 4.0]},
    schema={"user": pl.Int32, "item": pl.Int32, "rating": pl.Float32},
)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("1,2,3,4\n")
    return path


@pytest.fixture
def folder(tmp_path, source):
    """The folder of a cache that has been written."""
    RatingsCache(tmp_path / "cache", source).write(TABLE)
    return tmp_path / "cache" / "parsed"


def read(folder, source):
    return RatingsCache(folder.parent, source).read()


def test_nothing_cached(tmp_path, source):
    assert RatingsCache(tmp_path, source).read() is None


def test_what_was_written_is_read_and_nothing_temporary_is_left(folder, source):
    table = read(folder, source)
    assert table.equals(TABLE) and table.dtypes == TABLE.dtypes
    (file,) = folder.iterdir()
    assert file.suffix == ".parquet"
    assert pl.read_parquet(file).equals(TABLE)


@pytest.mark.parametrize("change", ["size", "time"])
def test_a_changed_source_is_not_served_and_replaces_the_old(
    folder, source, change
):
    before = source.stat()
    source.write_text("1,2,3,4\n" if change == "time" else "1,2,3,45\n")
    new_time = before.st_mtime_ns + (1 if change == "time" else 0)
    os.utime(source, ns=(before.st_atime_ns, new_time))
    assert read(folder, source) is None
    RatingsCache(folder.parent, source).write(TABLE.head(1))
    assert len(read(folder, source)) == 1
    assert len(list(folder.iterdir())) == 1


def test_files_of_the_same_name_have_a_cache_each(tmp_path, folder, source):
    other = tmp_path / "other" / "ratings.csv"
    other.parent.mkdir()
    other.write_bytes(source.read_bytes())
    os.utime(other, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    assert read(folder, other) is None
    RatingsCache(folder.parent, other).write(TABLE.head(1))
    assert len(read(folder, source)) == 2
    assert len(read(folder, other)) == 1


def cut(content):
    return content[:-10]


def flip_a_bit(content):
    middle = len(content) // 2
    return (
        content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    )


@pytest.mark.parametrize("damage", [cut, flip_a_bit, lambda content: b""])
def test_damage_is_noticed_and_logged(folder, source, caplog, damage):
    (file,) = folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    with caplog.at_level(logging.WARNING, "absl"):
        assert read(folder, source) is None
    (record,) = caplog.records
    assert str(file) in record.getMessage()
    RatingsCache(folder.parent, source).write(TABLE)
    assert read(folder, source).equals(TABLE)


def test_a_cache_that_cannot_be_written_is_one_warning(
    tmp_path, source, caplog
):
    # A file where the folder should be stops root, too; a mode would not.
    (tmp_path / "cache").write_text("in the way")
    with caplog.at_level(logging.WARNING, "absl"):
        RatingsCache(tmp_path / "cache", source).write(TABLE)
    (record,) = caplog.records
    assert "not cached" in record.getMessage()
    assert "KERASMGPU_CACHE" in record.getMessage()
