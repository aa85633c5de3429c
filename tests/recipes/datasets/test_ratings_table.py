import io

import numpy as np
import polars as pl
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import ratings_table

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


@pytest.mark.parametrize("wrong", [line for line in WRONG_LINES if line])
def test_wrong_last_line(wrong):
    with pytest.raises(InputError, match="Line 3 of a file is not a rating"):
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


def test_empty_file():
    with pytest.raises(InputError, match="a file is empty"):
        parse(b"")


def test_header_only():
    with pytest.raises(InputError, match="a file has no ratings"):
        parse(HEADER)


@pytest.mark.parametrize(
    "first", [b"movieId,title,genres\n", b"hello\n", b"\n", b"a,b,c,d,e\n"]
)
def test_first_line_of_another_file(first):
    with pytest.raises(InputError, match="Line 1 of a file is not a rating"):
        parse(first + b"1,2,3,9\n")
