"""A report's folder, new or empty, and how wide its tables may be."""

import pytest

from kerasmgpu.commands import reports
from kerasmgpu.errors import InputError


def test_a_file_has_room_for_every_column(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    reports.console().print("x" * 120)
    assert capsys.readouterr().out == "x" * 120 + "\n"


def test_a_terminal_keeps_its_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # What rich takes for one.
    assert reports.console().width == 40


def test_a_folder_is_made_or_taken_while_it_is_empty(tmp_path):
    folder = reports.empty_folder(tmp_path / "a" / "b")
    assert folder.is_dir()
    assert reports.empty_folder(str(folder)) == folder


@pytest.mark.parametrize("place", ["folder", "folder/file"])
def test_what_is_there_is_not_overwritten(tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    with pytest.raises(InputError, match="must be new or empty"):
        reports.empty_folder(tmp_path / place)
