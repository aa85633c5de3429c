"""Lines, prefixes and progress bars."""

import gc
import io
import os
import sys

import pytest

from kerasmgpu.launch.output import Lines, Terminal, WorkerOutput


@pytest.mark.parametrize(
    "chunks, expected",
    [
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a", b"b\nc"], ["ab"]),
        ([b"a\r\nb\r", b"\n"], ["a", "b"]),
        ([b"\n\n"], ["", ""]),
        ([b"1%\r2%\r", b"3%\r", b"done\n"], ["done"]),
        ([b"\r1%", b"\r2%", b"\n"], ["2%"]),
        (["é\n".encode()[:1], "é\n".encode()[1:]], ["é"]),
        ([b"\xff\n"], ["\ufffd"]),
    ],
)
def test_lines(chunks, expected):
    lines = Lines(now=0)
    assert sum([lines.feed(c, now=1) for c in chunks], []) == expected


def test_the_last_line_needs_no_end():
    lines = Lines(now=0)
    assert lines.feed(b"a\nb", now=1) == ["a"]
    assert lines.feed(b"", now=1, is_last=True) == ["b"]
    assert lines.feed(b"", now=1, is_last=True) == []


def test_progress_shows_every_five_seconds():
    lines = Lines(now=0)
    shown = [lines.feed(b"%d%%\r" % t, now=t) for t in range(12)]
    assert sum(shown, []) == ["5%", "10%"]


def test_endless_line_is_cut():
    lines = Lines(now=0)
    (line,) = lines.feed(b"x" * 70000, now=0)
    assert line == "x" * 70000
    assert lines.feed(b"\n", now=0) == [""]


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    "stream, environ, expected",
    [
        (Screen, {}, "\x1b[33m[1]\x1b[0m text\n"),
        (Screen, {"NO_COLOR": "1"}, "[1] text\n"),
        (io.StringIO, {}, "[1] text\n"),
    ],
)
def test_colour_on_terminals_only(stream, environ, expected):
    stream = stream()
    terminal = Terminal(stream, io.StringIO(), environ)
    terminal.show(1, ["text"])
    terminal.close()
    assert stream.getvalue() == expected


def test_full_disk_ends_the_log_only(monkeypatch):
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    shown, said = io.StringIO(), io.StringIO()
    terminal = Terminal(shown, said, {})
    reading, writing = os.pipe()
    pipe = open(reading, "rb", buffering=0)
    output = WorkerOutput(0, pipe, terminal, "/dev/full")
    os.write(writing, b"a\nb\n")
    os.close(writing)
    assert output.finish(5) == ["a", "b"]
    terminal.close()
    assert shown.getvalue() == "[0] a\n[0] b\n"
    assert "stopped writing the log of worker 0" in said.getvalue()
    del output
    gc.collect()  # Nothing is left in a buffer of the log.
    assert not unraisable
