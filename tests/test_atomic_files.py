"""Files that are there whole or not at all."""

import os
import pathlib
import time

import pytest

from kerasmgpu import atomic_files


def test_a_file_gets_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("before")
    with atomic_files.atomic_write(path) as temporary:
        temporary.write_text("after")
        assert temporary.suffix == ".json"
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "report.json"
    path.write_text("before")
    with pytest.raises(error):
        with atomic_files.atomic_write(str(path)) as temporary:
            temporary.write_text("half of")
            raise error
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_before_anything_is_written_is_the_one_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="no/.tmp-report.json"):
        with atomic_files.atomic_write(
            tmp_path / "no/report.json"
        ) as temporary:
            temporary.write_text("")


def test_several_writers_have_files_of_their_own(tmp_path):
    path = tmp_path / "report.json"
    with atomic_files.atomic_write(path, several=True) as slow:
        slow.write_text("slow")
        with atomic_files.atomic_write(path, several=True) as fast:
            fast.write_text("fast")
        assert path.read_text() == "fast"
    assert path.read_text() == "slow"


def test_what_can_not_be_emptied_is_removed(tmp_path, monkeypatch):
    path = tmp_path / "model.h5"
    path.write_text("half")

    def refuse(path, length):
        raise PermissionError(path)

    monkeypatch.setattr("os.truncate", refuse)
    atomic_files.discard(path)
    assert not path.exists()


def test_what_is_discarded_takes_no_space_while_it_is_open(tmp_path):
    """As HDF5 has its file open after an error."""
    path = tmp_path / "model.h5"
    with open(path, "wb") as file:
        file.write(b"0" * 10_000)
        file.flush()
        atomic_files.discard(path)
        assert file.seek(0, 2) == 0
    assert not path.exists()


def test_a_write_that_fails_leaves_the_former_text(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    atomic_files.write_text(path, "first")
    assert [item.name for item in tmp_path.iterdir()] == ["report.json"]

    def full_disk(self, text, encoding):
        with open(self, "w") as file:
            file.write(text[:3])
        raise OSError("No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_text", full_disk)
    with pytest.raises(OSError):
        atomic_files.write_text(path, "second")
    assert path.read_text() == "first"


def test_what_this_command_began_is_removed(tmp_path):
    old = tmp_path / ".tmp-old"
    old.write_text("of another process, or of an earlier one")
    os.utime(old, (1, 1))
    for folder in (tmp_path, tmp_path / "dual"):
        (folder / ".tmp-checkpoint-000001" / "deep").mkdir(parents=True)
        (folder / ".tmp-checkpoint-000001" / "deep" / "w.h5").write_text("x")
        (folder / ".tmp-model.keras").write_text("x")
        (folder / "flags.txt").write_text("x")
    with open(tmp_path / ".tmp-open", "w") as still_open:
        still_open.write("of HDF5")
        still_open.flush()
        atomic_files.discard_all(tmp_path, time.time() - 10)
        assert os.fstat(still_open.fileno()).st_size == 0
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == [
        ".tmp-old",
        "flags.txt",
        "flags.txt",
    ]
