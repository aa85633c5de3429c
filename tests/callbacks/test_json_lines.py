"""A file of records that is whole at every moment."""

import json
import os
import subprocess
import sys
import threading

import pytest

from kerasmgpu.callbacks import json_lines
from kerasmgpu.callbacks.json_lines import JsonLines
from kerasmgpu.errors import InputError
from kerasmgpu.stores import store_path
from kerasmgpu.stores.store_path import StorePath


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


@pytest.mark.parametrize(
    "text, damaged",
    [
        ('{"epoch": 0}\n\n{"epoch": 1}\n', []),
        ('{"epoch": 0}\n{"epoch": 1}', []),
        ('{"epoch": 0}\n{"epoch": 1}\n{"epoch": 2, "sec', []),
        ('{"epoch": 0}\n{"epo\n[1]\n{"epoch": 1}\n', [2, 3]),
        ('{"epoch": 0}\n{"epoch": 1}\n[2]', [3]),
    ],
)
def test_a_half_last_line_is_no_damage(text, damaged):
    records = [{"epoch": 0}, {"epoch": 1}]
    assert json_lines.parse(text) == (records, damaged)


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


@pytest.fixture
def faults():
    """A store's faults: none, unless they are set."""
    pytest.importorskip("fsspec")
    from tests import faulty_store

    yield faulty_store.set_faults
    faulty_store.set_faults()


@pytest.fixture
def folder(faults, tmp_path, monkeypatch):
    monkeypatch.setattr(store_path, "_WAITS", (0.0, 0.0))
    faults()
    return StorePath(f"faulty://{tmp_path}/run")


def test_lines_are_continued_in_a_store(folder):
    path = folder / "lines.jsonl"
    path.write_bytes(b'{"epoch": 0}\n{"epoch": 1, "sec')
    lines = JsonLines(path)
    lines.append({"epoch": 1})
    assert path.read_text() == '{"epoch": 0}\n{"epoch": 1}\n'
    lines.keep(lambda record: record["epoch"] < 1)
    assert path.read_text() == '{"epoch": 0}\n'


def test_samples_are_not_put_one_by_one(folder, faults, monkeypatch):
    done = faults().done
    now = [0.0]
    monkeypatch.setattr(json_lines.time, "monotonic", lambda: now[0])
    path = folder / "devices.jsonl"
    lines = JsonLines(str(path))
    counts = []
    for now[0] in (0.0, 10.0, 31.0, 40.0):
        lines.append({"time": now[0]}, sync=False)
        counts.append(done.count("put_file") // 2)
    assert counts == [0, 0, 1, 1]
    lines.close()
    assert len(path.read_text().splitlines()) == 4
    lines.close()
    assert done.count("put_file") == 4


def test_a_file_in_a_store_that_can_not_be_written(folder, faults):
    faults(always=("pipe_file",))
    with pytest.raises(InputError, match="path must be a file.*503 Slow Down"):
        JsonLines(str(folder / "lines.jsonl"))
