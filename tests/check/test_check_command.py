"""`kerasmgpu check`, as a user runs it."""

import json
import pathlib
import subprocess
import time

import pytest

from tests import console
from tests.check import programs

PROGRAMS = pathlib.Path(__file__).with_name("programs.py")


def start(folder, *arguments, launch=()):
    return console.start(
        *launch,
        "check",
        *arguments,
        folder=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def check(folder, *arguments, launch=()):
    """Runs the command; returns its status, and its output."""
    process = start(folder, *arguments, launch=launch)
    output, _ = process.communicate(timeout=500)
    return process.returncode, output


def words(output):
    """The text of a table, whose cells may be of several lines."""
    return " ".join(output.replace("│", " ").split())


@pytest.mark.nightly
def test_a_module_in_the_working_directory(tmp_path):
    console.put_module(programs, tmp_path)
    flags = ["--virtual_devices=3", "--shard=weights", "--output=out.json"]
    status, output = check(tmp_path, "my_module:sound", *flags)
    assert status == 0, output
    assert "ALL WENT WELL on one device and on 3 replicas." in output
    lines = output.splitlines()
    assert lines[0].startswith("checking my_module:sound: loading TensorFlow")
    assert "── one device …" in lines
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["is_well"]
    assert [run["replicas"] for run in report["runs"]] == [1, 3]


def test_something_is_said_at_once(tmp_path):
    process = start(tmp_path, f"{PROGRAMS}:sleeps")
    try:
        began = time.monotonic()
        line = process.stdout.readline()
        assert line.startswith("checking ")
        assert time.monotonic() - began < 10  # On a busy machine.
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_crash_and_a_hang_have_their_rows(tmp_path):
    limit = "--timeout_seconds=60"
    status, output = check(tmp_path, f"{PROGRAMS}:crashes_or_sleeps", limit)
    assert status == 1
    assert "ended by signal 11 (programs.py, line " in words(output)
    assert "FAILED: step 1 (one device), build() (2 replicas)." in output
    assert "did not end within 60 s (--timeout_seconds)" in words(output)
    assert "time.sleep(1000))" in words(output)


@pytest.mark.nightly
def test_a_job_of_two_workers(tmp_path):
    """In which all goes well until one worker fails in its last process."""
    launch = ["launch", "--num_workers=2", "-m", "kerasmgpu"]
    build = f"{PROGRAMS}:loads_on_one"
    status, output = check(tmp_path, build, launch=launch)
    assert status == 1, output
    assert "2 replicas of 2 workers" in output
    assert output.count("── one device …") == 1
    text = words(output.replace("[0]", "").replace("[1]", ""))
    assert "worker 1 is lost: RuntimeError: worker 1 has no such" in text
    assert "FAILED: load (2 replicas of 2 workers)." in output
