"""Paths in object stores, and what is said of those that can't be used."""

import pathlib
import sys

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.stores import places
from kerasmgpu.stores.store_path import StorePath

pytest.importorskip("fsspec")


def test_local_paths_are_those_of_pathlib(tmp_path):
    assert places.place("runs/1") == pathlib.Path("runs/1")
    assert places.place(tmp_path) is not None
    assert places.place(f"file://{tmp_path}") == tmp_path
    # A folder may have such a name.
    assert places.place("notes:/1") == pathlib.Path("notes:/1")


def test_a_url_has_the_parts_of_a_path():
    path = places.place("s3://bucket/runs/1/") / "model.keras"
    assert str(path) == "s3://bucket/runs/1/model.keras"
    assert (path.name, path.stem, path.suffix) == (
        "model.keras",
        "model",
        ".keras",
    )
    assert path.parent == StorePath("s3://bucket/runs/1")
    assert path.with_name("x") == StorePath("s3://bucket/runs/1/x")
    assert places.place(path) is path


def test_a_file_and_a_folder_are_copied_once(tmp_path, capsys):
    import fsspec

    files = {"/data/a.csv": b"1", "/data/deep/b.csv": b"22"}
    system = fsspec.filesystem("memory")
    for path, content in files.items():
        system.pipe_file(path, content)
    folder = pathlib.Path(places.local_copy("memory://data"))
    for path, content in files.items():
        copy = folder / pathlib.Path(path).relative_to("/data")
        assert copy.read_bytes() == content
    file = places.local_copy("memory://data/a.csv")
    assert pathlib.Path(file).read_bytes() == b"1"
    assert places.local_copy("memory://data") == str(folder)
    assert capsys.readouterr().err.splitlines() == [
        "copying memory://data",
        "copying memory://data/a.csv",
    ]
    assert places.local_copy(f"file://{tmp_path}") == str(tmp_path)
    with pytest.raises(InputError, match="x can't be copied: .*No such file"):
        places.local_copy("memory://data/x")


def test_a_slash_that_pathlib_has_taken_is_missed():
    with pytest.raises(InputError, match="string 's3://bucket/run'"):
        places.place(pathlib.Path("s3://bucket/run"))


@pytest.mark.parametrize("url", ["s3://", "gs:///"])
def test_a_url_without_a_bucket(url):
    with pytest.raises(InputError, match="names a bucket and a path"):
        places.place(url)
    assert places.place("s3://bucket").parent == StorePath("s3://bucket")


def test_a_scheme_that_fsspec_does_not_know():
    with pytest.raises(InputError) as error:
        places.checked_place("s4://bucket/run", "directory")
    assert str(error.value).startswith("directory: s4:// is no store")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("package", ["fsspec", "fsspec.core"])
def test_without_fsspec_the_extra_is_named(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r'pip install "kerasmgpu\[stores\]"'):
        places.checked_place("s3://bucket/run", "directory")


def test_without_the_package_of_a_store_the_extra_is_named(monkeypatch):
    registry = sys.modules["fsspec.registry"]._registry
    monkeypatch.setitem(sys.modules, "s3fs", None)
    # A registered class needs no import.
    monkeypatch.delitem(registry, "s3", raising=False)
    with pytest.raises(InputError, match=r"s3fs.*kerasmgpu\[stores\]"):
        places.checked_place("s3://bucket/run", "directory")


@pytest.mark.parametrize("value", ["", 3, None, b"s3://bucket"])
def test_what_is_no_path(value):
    with pytest.raises(InputError, match="^folder must be a path"):
        places.checked_place(value, "folder")
