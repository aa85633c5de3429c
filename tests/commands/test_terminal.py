"""How wide tables may be."""

from kerasmgpu.commands import terminal


def test_a_file_has_room_for_every_column(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    terminal.console().print("x" * 120)
    assert capsys.readouterr().out == "x" * 120 + "\n"


def test_a_file_is_as_wide_as_is_asked_for(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert terminal.console().width == 200


def test_a_terminal_keeps_its_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # What rich takes for one.
    assert terminal.console().width == 40
