"""Parsed ratings on disk: served while the source is as it was."""

import logging
import os

import polars as pl
import pytest

from kerasmgpu.recipes.datasets.ratings_cache import RatingsCache

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
