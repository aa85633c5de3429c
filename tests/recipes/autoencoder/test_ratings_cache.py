import json
import logging
import os

import numpy as np
import pytest

from kerasmgpu.recipes.autoencoder import generated_ratings, ratings_cache

ARRAYS = ("users", "items", "values", "user_ids", "item_ids")


@pytest.fixture
def ratings():
    return generated_ratings.generate(20, 30, 200)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("1,2,3,4\n")
    return path


@pytest.fixture
def cached(tmp_path, source, ratings):
    """The folder of a cache that has been written, and its fingerprint."""
    fingerprint = ratings_cache.fingerprint(source)
    ratings_cache.write(tmp_path / "cache", fingerprint, ratings)
    (folder,) = (tmp_path / "cache" / "parsed").iterdir()
    return folder, fingerprint


def test_nothing_cached(tmp_path, source):
    fingerprint = ratings_cache.fingerprint(source)
    assert ratings_cache.read(tmp_path, fingerprint) is None


def test_what_was_written_is_mapped_in(tmp_path, cached, ratings):
    read = ratings_cache.read(tmp_path / "cache", cached[1])
    for name in ARRAYS:
        array = getattr(read, name)
        np.testing.assert_array_equal(array, getattr(ratings, name))
        assert array.dtype == getattr(ratings, name).dtype
        assert not array.flags.writeable and not array.flags.owndata
    assert read.description == ratings.description


def test_nothing_temporary_is_left(cached):
    folder, _ = cached
    names = {f"{name}.npy" for name in ARRAYS} | {"manifest.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("change", ["size", "time"])
def test_a_changed_source_is_not_served(tmp_path, cached, source, change):
    before = source.stat()
    source.write_text("1,2,3,4\n" if change == "time" else "1,2,3,45\n")
    new_time = before.st_mtime_ns + (1 if change == "time" else 0)
    os.utime(source, ns=(before.st_atime_ns, new_time))
    changed = ratings_cache.fingerprint(source)
    assert ratings_cache.read(tmp_path / "cache", changed) is None


def test_another_source_is_not_served(tmp_path, cached, source):
    other = tmp_path / "other" / "ratings.csv"
    other.parent.mkdir()
    other.write_bytes(source.read_bytes())
    os.utime(other, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    fingerprint = ratings_cache.fingerprint(other)
    assert ratings_cache.read(tmp_path / "cache", fingerprint) is None


def test_files_of_the_same_name_have_a_cache_each(tmp_path, cached, ratings):
    other = tmp_path / "other" / "ratings.csv"
    other.parent.mkdir()
    other.write_text("1,2,3,4\n")
    fingerprint = ratings_cache.fingerprint(other)
    ratings_cache.write(tmp_path / "cache", fingerprint, ratings)
    for each in (cached[1], fingerprint):
        assert ratings_cache.read(tmp_path / "cache", each) is not None


def test_a_new_state_replaces_the_old_one(tmp_path, cached, source):
    folder, _ = cached
    source.write_text("1,2,3,4\n5,6,7,8\n")
    changed = ratings_cache.fingerprint(source)
    new = generated_ratings.generate(20, 30, 100, seed=9)
    ratings_cache.write(tmp_path / "cache", changed, new)
    assert len(ratings_cache.read(tmp_path / "cache", changed)) == 100
    assert list(folder.parent.iterdir()) == [folder]


def truncate(folder):
    path = folder / "items.npy"
    path.write_bytes(path.read_bytes()[:-10])


def empty(folder):
    (folder / "values.npy").write_bytes(b"")


def flip_a_bit(folder):
    path = folder / "users.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def remove(folder):
    (folder / "user_ids.npy").unlink()


def cut_the_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text()[:-5])


def strip_the_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(
        json.dumps({"source": json.loads(path.read_text())["source"]})
    )


def replace_the_manifest(folder):
    (folder / "manifest.json").write_text("[]")


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        empty,
        flip_a_bit,
        remove,
        cut_the_manifest,
        strip_the_manifest,
        replace_the_manifest,
    ],
)
def test_damage_is_noticed_and_logged(
    tmp_path, cached, ratings, caplog, damage
):
    folder, fingerprint = cached
    damage(folder)
    with caplog.at_level(logging.WARNING, "absl"):
        assert ratings_cache.read(tmp_path / "cache", fingerprint) is None
    (record,) = caplog.records
    assert str(folder) in record.getMessage()
    ratings_cache.write(tmp_path / "cache", fingerprint, ratings)
    assert len(ratings_cache.read(tmp_path / "cache", fingerprint)) == 200


def test_a_cache_that_cannot_be_written_is_one_warning(
    tmp_path, source, ratings, caplog
):
    # A file where the folder should be stops root, too; a mode would not.
    (tmp_path / "cache").write_text("in the way")
    fingerprint = ratings_cache.fingerprint(source)
    with caplog.at_level(logging.WARNING, "absl"):
        ratings_cache.write(tmp_path / "cache", fingerprint, ratings)
    (record,) = caplog.records
    assert "not cached" in record.getMessage()
    assert "KERASMGPU_CACHE" in record.getMessage()


def test_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("KERASMGPU_CACHE", str(tmp_path))
    assert ratings_cache.default_cache_dir() == tmp_path
    monkeypatch.delenv("KERASMGPU_CACHE")
    monkeypatch.setenv("HOME", "/home/somebody")
    expected = "/home/somebody/.cache/kerasmgpu"
    assert str(ratings_cache.default_cache_dir()) == expected
