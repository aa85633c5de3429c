"""The command, as a user runs it, on logical CPU devices."""

import json
import socket

import pytest

from kerasmgpu.doctor import examination
from tests import console


def run(*arguments, **environ):
    return console.run(*arguments, timeout=3000, **environ)


@pytest.mark.slow
def test_two_logical_devices(tmp_path):
    text = tmp_path / "doctor.txt"
    done = run(
        "doctor",
        "--virtual_devices=2",
        "--max_megabytes=1",
        f"--data_dir={tmp_path}",
        f"--output={text}",
        "--json",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.startswith("── this machine and TensorFlow …\n")
    report = json.loads(done.stdout)
    assert report["problems"] == 0 and report["replicas"] == 2
    assert report["devices"].startswith("No GPU is used: CPU:0, CPU:1")
    collectives = report["collectives"]
    assert [one["collective"] for one in collectives] == [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
    ]
    assert all(one["is_right"] and one["seconds"] > 0 for one in collectives)
    keys = {one["key"] for one in report["findings"]}
    assert keys >= {"versions", "xla", "cpus", "disk_speed", "collectives"}
    assert list(tmp_path.iterdir()) == [text]
    said = text.read_text("utf-8")
    assert said.startswith("No GPU is used") and "NO PROBLEM" in said
    assert f" {socket.gethostname()} " not in said


@pytest.mark.slow
def test_a_problem_ends_with_status_1():
    done = run(
        "doctor",
        "--max_megabytes=1",
        "--json",
        KERAS_BACKEND="no_backend",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads(done.stdout)
    problems = {
        one["key"] for one in report["findings"] if one["status"] == "problem"
    }
    assert problems == {"import_failed", "collectives_failed"}
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.nightly
def test_a_job_of_two_workers():
    done = run(
        "launch",
        "--num_workers=2",
        "--",
        "-m",
        "kerasmgpu",
        "doctor",
        "--max_megabytes=1",
        COLUMNS="140",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on each of 2 workers are logical CPU devices" in done.stdout
    assert "worker 1: GPUs" in done.stdout
    assert "Collectives of 2 replicas" in done.stdout
    assert "[1] " not in done.stdout  # The first worker speaks for all.


@pytest.mark.slow
def test_training_holds(monkeypatch):
    """Of fourteen models, a process each, these three: the table has all."""
    names = ("dense, saved and loaded", "sharded weights")
    few = {name: examination.TRIALS[name] for name in names}
    monkeypatch.setattr(examination, "TRIALS", few)
    child = examination._child

    def only_of_trials(module, *arguments):
        if module == "trial":
            return child(module, *arguments)
        return {"error": "left out"}

    monkeypatch.setattr(examination, "_child", only_of_trials)
    report = examination.run(train=True, timeout_seconds=600)
    found = [one["key"] for one in report["findings"]]
    assert found.count("trial") == len(report["trials"])
    assert [*report["trials"]] == [*few, examination.JOB]
    for name, trial in report["trials"].items():
        assert trial["distance"] <= trial["tolerance"], name
        assert trial["many"]["examples_per_second"] > 0
    exact = report["trials"][examination.JOB]
    assert exact["tolerance"] == 1e-12 and exact["distance"] > 0
