"""The command and its processes, as a user runs them."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import kerasmgpu
from kerasmgpu.benchmark import processes
from kerasmgpu.benchmark.figures import FIGURES
from kerasmgpu.errors import InputError
from tests.benchmark.process_watch import is_gone, wait_for

LIBRARY = str(pathlib.Path(kerasmgpu.__file__).resolve().parents[1])
SLEEPER = """
import os, pathlib, subprocess, sys, time
from kerasmgpu.benchmark.processes import end_with_parent
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


def command(*flags):
    return subprocess.run(
        [sys.executable, "-m", "kerasmgpu.benchmark", *flags],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_two_contenders_for_real(tmp_path):
    done = command(
        "--workloads=convnet",
        "--contenders=one_device,kerasmgpu",
        "--replica_counts=2",
        "--rounds=1",
        "--steps=2",
        "--global_batch_size=10",
        "--virtual_devices",
        f"--output_dir={tmp_path}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "benchmark.json").read_text())
    one, two = [run["result"] for run in report["runs"]]
    assert all(one[name] > 0 and two[name] > 0 for name in FIGURES)
    assert (one["devices"], two["devices"]) == (["CPU:0"], ["CPU:0", "CPU:1"])
    # From the same weights with the same batches, the same model.
    for loss in ("first_loss", "last_loss"):
        assert one[loss] == pytest.approx(two[loss], rel=1e-4)
    assert one["first_loss"] != one["last_loss"]
    assert report["disagreements"] == []
    # Both got through as many steps as they were timed for.
    assert 10 / one["wall_ms_per_step"] * 1000 == pytest.approx(
        one["examples_per_second"]
    )
    assert "kerasmgpu" in done.stdout and "[2/2]" in done.stdout


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--workloads=nope"], "workloads must be some of"),
        (["--replica_counts=2,x"], "replica_counts must be"),
        (["deep_narrow"], "only flags are expected"),
    ],
)
def test_bad_input_is_one_line(tmp_path, flags, message):
    done = command(*flags, f"--output_dir={tmp_path / 'out'}")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert done.stderr.count("\n") == 1


def test_reason_of_a_failure_and_the_log(tmp_path, sleeper):
    log = tmp_path / "log.txt"
    with pytest.raises(InputError, match="^no more today$"):
        processes.run_module(sleeper, "fail", log, 60)
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
    told = processes.failure_reason(1, ["Traceback", *lines])
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
        processes.run_module("deaf", str(number), tmp_path / "log", 2)
    assert time.monotonic() - begin < 15
    wait_for(lambda: is_gone(int(number.read_text())), seconds=5)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_process_ends_with_its_parent(tmp_path, sleeper, stop):
    number = tmp_path / "number"
    code = (
        "from kerasmgpu.benchmark import processes;"
        f"processes.run_module({sleeper!r}, {str(number)!r}, "
        f"{str(tmp_path / 'log')!r}, 600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL
    )
    wait_for(number.exists)
    parent.send_signal(stop)
    parent.wait(30)
    wait_for(lambda: is_gone(int(number.read_text())))
