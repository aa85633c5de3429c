"""Modules in processes of their own: their reasons, their end and ours."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import kerasmgpu
from kerasmgpu.commands import child_module
from kerasmgpu.errors import InputError
from tests.commands.process_watch import is_gone, wait_for

LIBRARY = str(pathlib.Path(kerasmgpu.__file__).resolve().parents[1])
SLEEPER = """
import os, pathlib, subprocess, sys, time
from kerasmgpu.commands.child_module import end_with_parent
end_with_parent()
print("started", flush=True)
if sys.argv[1] == "fail":
    raise SystemExit("error: no more today")
path = pathlib.Path(sys.argv[1])
path.with_suffix(".new").write_text(str(os.getpid()))
path.with_suffix(".new").rename(path)
time.sleep(600)
"""


@pytest.fixture
def sleeper(tmp_path, monkeypatch):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{LIBRARY}")
    return "sleeper"


def test_reason_of_a_failure_and_the_log(tmp_path, sleeper):
    log = tmp_path / "log.txt"
    with pytest.raises(InputError, match="^no more today$"):
        child_module.run_module(sleeper, "fail", log, 60)
    assert "started" in log.read_text()


ERROR = "a.InvalidArgumentError: Graph execution error:"


@pytest.mark.parametrize(
    "lines, reason",
    [
        (["ValueError: no"], "ValueError: no"),
        ([ERROR, "", "x defined at", "No kernel", "\t [[x]]"], "No kernel"),
        ([ERROR, "", "2 root errors", "  (0) OOM: full", "x"], "(0) OOM: full"),
        ([ERROR, "x"], ERROR),
    ],
)
def test_reason_inside_a_graph(lines, reason):
    told = child_module.failure_reason(1, ["Traceback", *lines])
    assert told.endswith(reason)
    assert told.startswith(lines[0])


def test_a_process_that_hangs_is_ended_with_what_it_started(tmp_path, sleeper):
    # It does not even notice that its parent has let go of it.
    (tmp_path / "deaf.py").write_text(
        "import subprocess, sys\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(20)']\n"
        "process = subprocess.Popen(sleep)\n"
        "open(sys.argv[1], 'w').write(str(process.pid))\n"
        "process.wait()\n"
    )
    number = tmp_path / "number"
    begin = time.monotonic()
    with pytest.raises(InputError, match="did not end within 2 s"):
        child_module.run_module("deaf", str(number), tmp_path / "log", 2)
    assert time.monotonic() - begin < 15
    wait_for(lambda: is_gone(int(number.read_text())), seconds=5)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_process_ends_with_its_parent(tmp_path, sleeper, stop):
    number = tmp_path / "number"
    code = (
        "from kerasmgpu.commands import child_module;"
        f"child_module.run_module({sleeper!r}, {str(number)!r}, "
        f"{str(tmp_path / 'log')!r}, 600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL
    )
    wait_for(number.exists)
    parent.send_signal(stop)
    parent.wait(30)
    wait_for(lambda: is_gone(int(number.read_text())))
