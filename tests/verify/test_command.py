"""The command, the function, and their processes, as a user runs them."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import kerasmgpu.verify
from kerasmgpu.commands.references import reference
from kerasmgpu.errors import InputError
from kerasmgpu.verify import verification
from tests import console
from tests.verify import programs

LIBRARY = pathlib.Path(kerasmgpu.__file__).resolve().parents[1]
PROGRAMS = pathlib.Path(__file__).with_name("programs.py")


def command(*arguments, folder=None):
    """Runs `python …`; returns the finished process."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(LIBRARY)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def verify(function, *flags, folder=None):
    return console.run("verify", function, *flags, folder=folder)


def one_error(done):
    """The one line of an error that ended the command."""
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.slow
def test_sound_model_ends_with_status_0(tmp_path):
    console.put_module(programs, tmp_path)
    output = tmp_path / "report.json"
    flags = ["--float64", "--replica_counts=4", f"--output={output}"]
    flags.append("--data=my_module:data")
    done = verify("my_module:sound", *flags, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "── 4 replicas …" in done.stdout
    assert "IN PARITY" in done.stdout
    report = json.loads(output.read_text())
    assert report["in_parity"] and report["tolerance"] == 1e-12
    for run in report["runs"]:
        assert run["checks"]["weights (W)"]["distance"] <= 1e-12


@pytest.mark.nightly
def test_a_process_returns_the_facts_of_its_run(monkeypatch):
    monkeypatch.setattr(
        verification,
        "compare_all",
        lambda runs, *_: runs.outcome("2 replicas", num_replicas=2).facts,
    )
    facts = kerasmgpu.verify(f"{PROGRAMS}:sound", steps=2, show=False)
    assert len(facts["batches"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "program, flags, message",
    [
        ("raises", [], "build() raised KeyError: 'size' (programs.py, line "),
        (
            "hangs",
            ["--timeout_seconds=3"],
            # It may not even have come to build() on a busy machine.
            " did not end within 3 s (--timeout_seconds)",
        ),
    ],
)
def test_program_that_can_not_run_is_one_line(program, flags, message):
    line = one_error(verify(f"{PROGRAMS}:{program}", *flags))
    assert message in line
    assert "\x1b" not in line


def processes_of(text):
    """Ids of the processes whose environment contains `text`."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if text in path.read_bytes().decode(errors="replace"):
                found.append(int(path.parent.name))
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
    return found


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc")
@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL]
)
def test_no_process_is_left_over(number, tmp_path):
    parent = subprocess.Popen(
        console.command("verify", f"{PROGRAMS}:hangs"),
        env=console.environment(TMPDIR=str(tmp_path)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _until(lambda: list(tmp_path.glob("kerasmgpu-verify-*/1/phase.txt")))
        # The command, the process that has imported TensorFlow, and its copy.
        assert len(processes_of(f"TMPDIR={tmp_path}")) >= 3
        time.sleep(1)
        parent.send_signal(number)
        assert parent.wait(20) != 0
    finally:
        parent.kill()
        parent.wait()
    _until(lambda: not processes_of(f"TMPDIR={tmp_path}"))


def _until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


@pytest.mark.nightly
def test_function_of_a_program_that_runs(tmp_path):
    """`kerasmgpu.verify(build, arrays)` in a script, and its guard."""
    source = textwrap.dedent(
        """
        import kerasmgpu.verify, numpy
        from kerasmgpu.verify import verification

        def build():
            import keras
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            return model

        def one_run(runs, *_):
            return runs.outcome("2 replicas", num_replicas=2).facts

        arrays = (numpy.eye(30, 3), numpy.arange(30.0)[:, None])
        verification.compare_all = one_run
        """
    )
    call = "print(kerasmgpu.verify(build, arrays, show=False)['model'])\n"
    guarded, bare = tmp_path / "guarded.py", tmp_path / "bare.py"
    guarded.write_text(f"{source}if __name__ == '__main__':\n    {call}")
    bare.write_text(source + call)
    done = command(str(guarded))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("sequential")
    done = command(str(bare))
    assert done.returncode == 1
    assert 'put the call under `if __name__ == "__main__":`' in done.stderr


def test_functions_that_other_processes_can_not_find():
    assert reference(_until, "build") == f"{__name__}:_until"
    for function in (lambda: None, len.__call__, 3):
        with pytest.raises(InputError, match="top level of a module"):
            reference(function, "build")


def test_data_must_be_findable_too():
    with pytest.raises(InputError, match="Received: data of list, ndarray"):
        kerasmgpu.verify("json:loads", ([1.0], np.ones(1)))
