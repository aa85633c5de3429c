"""A file of records that is whole at every moment."""

import json
import os
import subprocess
import sys
import threading

import pytest

from kerasmgpu.callbacks.json_lines import JsonLines
from kerasmgpu.errors import InputError


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_record_a_line(tmp_path):
    path = tmp_path / "new" / "folder" / "lines.jsonl"
    lines = JsonLines(path)
    lines.append({"epoch": 0, "devices": ["GPU:0"]})
    lines.append({"epoch": 1, "seconds": float("nan")})
    assert read(path) == [
        {"epoch": 0, "devices": ["GPU:0"]},
        {"epoch": 1, "seconds": None},
    ]


@pytest.mark.parametrize(
    "before, kept",
    [
        ("", 0),
        ('{"epo', 0),
        ('{"epoch": 0}\n', 1),
        ('{"epoch": 0}\n{"epoch": 1, "sec', 1),
        ('{"epoch": 0}\n{', 1),
        ('{"epoch": 0}\n{"epoch": 1', 1),
        # A whole record without a line end.
        ('{"epoch": 0}\n{"epoch": 1}', 2),
    ],
)
def test_continues_a_file_without_half_a_line(tmp_path, before, kept):
    path = tmp_path / "lines.jsonl"
    path.write_text(before)
    JsonLines(path).append({"epoch": kept})
    assert read(path) == [{"epoch": epoch} for epoch in range(kept + 1)]


@pytest.mark.parametrize("text", ["my only copy\nof it", "one line", "[1]\n"])
def test_a_file_of_something_else_is_left_alone(tmp_path, text):
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(InputError, match="not a file of JSON lines"):
        JsonLines(path)
    assert path.read_text() == text


def test_a_thread_waits_for_the_disk(tmp_path, monkeypatch):
    answers, threads = threading.Event(), []

    def fsync(descriptor):
        answers.wait(30)
        threads.append(threading.current_thread())
        os.fstat(descriptor)  # It is open.

    monkeypatch.setattr(os, "fsync", fsync)
    lines = JsonLines(tmp_path / "lines.jsonl")
    lines.append({"epoch": 0})
    assert read(tmp_path / "lines.jsonl") == [{"epoch": 0}]
    assert not threads
    answers.set()
    lines.append({"epoch": 1})
    assert len(threads) >= 1
    assert threading.current_thread() not in threads


def test_an_error_of_the_disk_is_raised_by_the_next_call(tmp_path, monkeypatch):
    def fsync(descriptor):
        raise OSError("no space left")

    lines = JsonLines(tmp_path / "lines.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        lines.append({"epoch": 0})
        with pytest.raises(OSError, match="no space left"):
            lines.append({"epoch": 1})
    lines.append({"epoch": 2})
    lines.append({"epoch": 3})


@pytest.mark.slow
def test_a_kill_leaves_whole_lines(tmp_path):
    path = tmp_path / "lines.jsonl"
    code = (
        "import sys\n"
        "from kerasmgpu.callbacks.json_lines import JsonLines\n"
        "lines = JsonLines(sys.argv[1])\n"
        "print('started', flush=True)\n"
        "while True: lines.append({'text': 'x' * 3000})\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE
    )
    child.stdout.readline()
    while path.stat().st_size < 20_000:
        assert child.poll() is None
    child.kill()
    child.communicate()
    assert path.read_bytes().endswith(b"\n")
    assert {record["text"] for record in read(path)} == {"x" * 3000}
