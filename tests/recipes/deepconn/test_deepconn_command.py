"""The command as a person runs it, in a process of its own."""

import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "kerasmgpu.recipes.deepconn"]


def run(*arguments):
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--placement=triple"], "value should be one of"),
        (["--words=2"], "--words must be at least 4"),
    ],
)
def test_bad_flags_are_one_line_without_traceback(arguments, message):
    done = run(*arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert len([x for x in done.stderr.splitlines() if message in x]) == 1


def test_help_lists_own_and_shared_flags():
    done = run("--help")
    for name in ("--placement", "--words", "--num_replicas", "]resume"):
        assert name in done.stdout


def test_without_a_gpu_two_logical_cpus_stand_in():
    """They can be made only before anything is computed."""
    done = run(
        "--placement=dual", "--steps=2", "--words=20", "--profile_steps=0"
    )
    assert done.returncode == 0, done.stderr
    assert "2 logical CPU devices stand in" in done.stdout
    assert "CPU:0, CPU:1" in done.stdout
