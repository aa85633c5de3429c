"""Modules in processes of their own: their reasons, their end and ours."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import kerasmgpu
from kerasmgpu.commands import child_processes
from kerasmgpu.errors import InputError
from tests.commands.process_watch import is_gone, wait_for

LIBRARY = str(pathlib.Path(kerasmgpu.__file__).resolve().parents[1])
PROGRAM = """
import os, pathlib, sys, time
from kerasmgpu.commands.child_processes import do_job
from kerasmgpu.errors import InputError

def main(job):
    print("started", flush=True)
    if job["what"] == "return":
        return {"twice": 2 * job["number"]}
    if job["what"] == "refuse":
        print("Exception ignored in: a destructor", file=sys.stderr)
        raise InputError("no more\\n today")
    if job["what"] == "crash":
        raise KeyError("three")
    path = pathlib.Path(job["file"])
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(600)

do_job(main)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """The name of a module for `run_job`."""
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{LIBRARY}")
    return "program"


def test_a_job_has_a_result_and_a_log(tmp_path, program):
    job = {"what": "return", "number": 3}
    assert child_processes.run_job(program, job, tmp_path, 60) == {"twice": 6}
    assert (tmp_path / "log.txt").read_text() == "started\n"


def test_an_input_error_is_raised_in_the_parent(tmp_path, program):
    with pytest.raises(InputError, match="^no more today$") as raised:
        child_processes.run_job(program, {"what": "refuse"}, tmp_path, 60)
    assert not isinstance(raised.value, child_processes.ChildCrashed)
    log = (tmp_path / "log.txt").read_text()
    assert log.endswith("error: no more today\n")


def test_any_other_error_is_a_crash(tmp_path, program):
    with pytest.raises(
        child_processes.ChildCrashed, match="^KeyError: 'three'$"
    ) as raised:
        child_processes.run_job(program, {"what": "crash"}, tmp_path, 60)
    assert raised.value.status == 1


ERROR = "a.InvalidArgumentError: Graph execution error:"


@pytest.mark.parametrize(
    "lines, reason",
    [
        (["ValueError: no"], "ValueError: no"),
        ([ERROR, "", "x defined at", "No kernel", "\t [[x]]"], "No kernel"),
        ([ERROR, "", "2 root errors", "  (0) OOM: full", "x"], " full"),
        ([ERROR, "x"], ERROR),
    ],
)
def test_reason_inside_a_graph(lines, reason):
    told = child_processes.failure_reason(1, ["Traceback", *lines])
    assert told.endswith(reason)
    assert told.startswith(lines[0])


def test_a_process_that_hangs_is_ended_with_what_it_started(tmp_path, program):
    # It does not even notice that its parent has let go of it.
    (tmp_path / "deaf.py").write_text(
        "import subprocess, sys\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(20)']\n"
        "process = subprocess.Popen(sleep)\n"
        "open(sys.argv[1] + '/number', 'w').write(str(process.pid))\n"
        "process.wait()\n"
    )
    begin = time.monotonic()
    with pytest.raises(InputError, match="did not end within 2 s"):
        child_processes.run_job("deaf", {}, tmp_path, 2)
    assert time.monotonic() - begin < 15
    number = int((tmp_path / "number").read_text())
    wait_for(lambda: is_gone(number), seconds=5)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_process_ends_with_its_parent(tmp_path, program, stop):
    number = tmp_path / "number"
    job = {"what": "sleep", "file": str(number)}
    code = (
        "import pathlib; from kerasmgpu.commands import child_processes;"
        f"child_processes.run_job({program!r}, {job!r}, "
        f"pathlib.Path({str(tmp_path)!r}), 600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL
    )
    wait_for(number.exists)
    parent.send_signal(stop)
    parent.wait(30)
    wait_for(lambda: is_gone(int(number.read_text())))


@pytest.fixture
def tensorflow(tmp_path, monkeypatch):
    """Function that puts a text in the place of TensorFlow."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return (tmp_path / "tensorflow.py").write_text


def test_names_are_those_of_the_details(tensorflow):
    tensorflow("""
import types
print("a greeting")
gpus = [types.SimpleNamespace(name=f"/GPU:{i}") for i in range(2)]
details = {"/GPU:0": {"device_name": "NVIDIA A100"}, "/GPU:1": {}}
config = types.SimpleNamespace(
    experimental=types.SimpleNamespace(
        get_device_details=lambda gpu: details[gpu.name]
    ),
    list_physical_devices=lambda kind: gpus if kind == "GPU" else [],
)
""")
    assert child_processes.visible_gpus() == ["NVIDIA A100", "/GPU:1"]


def test_a_tensorflow_that_does_not_start_is_told(tensorflow):
    tensorflow("raise ImportError('libcudart.so: no such file')")
    with pytest.raises(
        InputError, match="does not start: ImportError: libcudart.so"
    ):
        child_processes.visible_gpus()


@pytest.mark.parametrize(
    "status, lines, reason",
    [
        (1, ["start", "error: no data", "bye"], "no data"),
        (
            1,
            ["Traceback (most recent call last):", "ValueError: bad\n", ""],
            "ValueError: bad",
        ),
        (1, ["a.b.ResourceError: full", "x"], "a.b.ResourceError: full"),
        (3, ["only this"], "only this"),
        (3, [], "it printed nothing"),
        (-9, ["epoch 3"], "ended by signal 9; last line: epoch 3"),
    ],
)
def test_the_reason_is_one_line(status, lines, reason):
    assert child_processes.failure_reason(status, lines) == reason
