"""Modules in processes of their own: their reasons, their end and ours."""

import contextlib
import functools
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import kerasmgpu
from kerasmgpu.commands import child_processes
from kerasmgpu.commands.forked_processes import copies_with
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
def program(request, tmp_path, monkeypatch):
    """The name of a module for `run_job`."""
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{LIBRARY}")
    return getattr(request, "param", "program")


@pytest.fixture(params=["new", "copy"])
def run(request, tmp_path, program):
    """Runs a job in a process that is new, or a copy."""
    with contextlib.ExitStack() as stack:
        start = child_processes.start_new
        if request.param == "copy":
            start = stack.enter_context(copies_with(["json"], {}))

        def run_job(job, seconds=60):
            return child_processes.run_job(
                program, job, tmp_path, seconds, start=start
            )

        yield run_job


def test_a_job_has_a_result_and_a_log(tmp_path, run):
    assert run({"what": "return", "number": 3}) == {"twice": 6}
    assert (tmp_path / "log.txt").read_text() == "started\n"


def test_an_input_error_is_raised_in_the_parent(tmp_path, run):
    with pytest.raises(InputError, match="^no more today$") as raised:
        run({"what": "refuse"})
    assert not isinstance(raised.value, child_processes.ChildCrashed)
    log = (tmp_path / "log.txt").read_text()
    assert log.endswith("error: no more today\n")


def test_any_other_error_is_a_crash(run):
    with pytest.raises(
        child_processes.ChildCrashed, match="^KeyError: 'three'$"
    ) as raised:
        run({"what": "crash"})
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


@pytest.mark.parametrize("program", ["deaf"], indirect=True)
def test_a_process_that_hangs_is_ended_with_what_it_started(tmp_path, run):
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
        run({}, seconds=2)
    assert time.monotonic() - begin < 15
    number = int((tmp_path / "number").read_text())
    wait_for(lambda: is_gone(number), seconds=5)


def test_copies_of_a_process_that_does_not_start_fail_with_its_reason(tmp_path):
    with copies_with(["no_such_module"], {}) as start:
        for _ in range(2):  # While it starts, and once it has ended.
            with pytest.raises(
                child_processes.ChildCrashed, match="named 'no_such_module'"
            ):
                child_processes.run_job("json", {}, tmp_path, 60, start=start)


def test_copies_can_be_ended_as_they_begin(tmp_path, program):
    job = {"what": "sleep", "file": str(tmp_path / "number")}
    begin = time.monotonic()
    with copies_with(["json"], {}) as start:
        for _ in range(20):
            with pytest.raises(InputError, match="did not end within 0 s"):
                child_processes.run_job(program, job, tmp_path, 0, start=start)
    assert time.monotonic() - begin < 60


def test_two_copies_run_at_a_time(tmp_path, program):
    """The first one waits for a file of the second one's."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    file = tmp_path / "number"
    with copies_with(["json"], {}) as start:
        run = functools.partial(child_processes.run_job, start=start)
        with pytest.raises(FloatingPointError):
            run(
                program,
                {"what": "wait", "file": str(file)},
                folders[0],
                60,
                watch=lambda: _second(run, program, folders[1], file),
            )


def _second(run, program, folder, file):
    if file.exists():
        job = {"what": "return", "number": 2}
        assert run(program, job, folder, 60) == {"twice": 4}
        assert not is_gone(int(file.read_text()))
        raise FloatingPointError


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
