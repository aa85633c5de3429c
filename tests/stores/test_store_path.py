"""Files in a store that fails for a while, or for good."""

import pathlib

import pytest

from kerasmgpu import atomic_files
from kerasmgpu.stores import store_path
from kerasmgpu.stores.store_path import StorePath

faulty_store = pytest.importorskip("tests.faulty_store")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(store_path, "_WAITS", (0.0, 0.0))
    yield StorePath(f"faulty://{tmp_path}/run")
    faulty_store.set_faults()


def test_a_file_is_written_read_and_deleted(folder):
    path = folder / "a.txt"
    assert not path.exists() and not folder.is_dir()
    atomic_files.write_text(path, "é")
    assert path.is_file() and folder.is_dir() and not path.is_dir()
    assert path.read_text() == "é" and path.num_bytes() == 2
    with path.open() as copy:
        assert copy.read() == "é".encode() and copy.fileno() > 0
    path.unlink()
    path.unlink()
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        path.read_bytes()


def test_any_part_of_a_file_is_read(folder, monkeypatch):
    monkeypatch.setattr(store_path, "_PEEKED", 16)
    content = bytes(range(100))
    (folder / "a").write_bytes(content)
    with (folder / "a").peek() as file:
        for start, size in ((0, 3), (90, 30), (40, 20), (100, 5)):
            file.seek(start)
            assert file.read(size) == content[start : start + size]
        file.seek(-4, 2)
        assert file.read() == content[-4:]


def test_an_error_in_the_block_puts_nothing(folder):
    with pytest.raises(KeyError):
        with atomic_files.atomic_write(folder / "a") as temporary:
            temporary.write_text("half")
            raise KeyError
    assert not (folder / "a").exists()


def test_what_fails_for_a_while_is_tried_again(folder):
    faults = faulty_store.set_faults(always=("put_file",))
    with pytest.raises(OSError, match="503 Slow Down") as error:
        atomic_files.write_text(folder / "a", "text")
    assert error.value.filename == str(folder / "a")
    assert faults.done == ["put_file"] * 3


def test_what_is_not_there_or_not_allowed_is_not_tried_again(
    folder, monkeypatch
):
    with pytest.raises(FileNotFoundError):
        (folder / "a").read_bytes()
    assert faulty_store.FAULTS.done.count("cat_file") == 1

    def refuse(self, path, **options):
        faulty_store.FAULTS.done.append("refused")
        raise PermissionError(path)

    monkeypatch.setattr(faulty_store.FaultyStore, "cat_file", refuse)
    with pytest.raises(PermissionError):
        (folder / "a").read_bytes()
    assert faulty_store.FAULTS.done.count("refused") == 1


def test_what_others_have_written_is_there_at_once(folder, monkeypatch):
    """Stores' clients keep listings."""
    store, kept = faulty_store.FaultyStore, {}
    listed = store.ls

    def list_once(self, path, detail=False):
        if path not in kept:
            kept[path] = listed(self, path, detail)
        return kept[path]

    monkeypatch.setattr(store, "ls", list_once)
    monkeypatch.setattr(
        store, "invalidate_cache", lambda self, path=None: kept.clear()
    )
    (folder / "a").write_bytes(b"")
    assert [path.name for path in folder.iterdir()] == ["a"]
    pathlib.Path(store._strip_protocol(str(folder / "b"))).touch()
    assert [path.name for path in folder.iterdir()] == ["a", "b"]
