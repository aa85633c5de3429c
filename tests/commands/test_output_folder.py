"""The folder of a report: new or empty; files in one piece."""

import pathlib

import pytest

from kerasmgpu.commands import output_folder
from kerasmgpu.errors import InputError


def test_a_folder_is_made_or_taken_while_it_is_empty(tmp_path):
    folder = output_folder.empty(tmp_path / "a" / "b")
    assert folder.is_dir()
    assert output_folder.empty(str(folder)) == folder


@pytest.mark.parametrize("place", ["folder", "folder/file"])
def test_what_is_there_is_not_overwritten(tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    with pytest.raises(InputError, match="must be new or empty"):
        output_folder.empty(tmp_path / place)


def test_a_write_that_fails_leaves_the_former_text(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    output_folder.write_text(path, "first")
    assert [item.name for item in tmp_path.iterdir()] == ["report.json"]

    def full_disk(self, text, encoding):
        with open(self, "w") as file:
            file.write(text[:3])
        raise OSError("No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_text", full_disk)
    with pytest.raises(OSError):
        output_folder.write_text(path, "second")
    assert path.read_text() == "first"
