"""The command as a person runs it, each in a process of its own."""

import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "kerasmgpu.recipes.alexnet"]


def run(*arguments):
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--data_path=no/such/folder"], "no/such/folder, which does not"),
        (["--network=lenet"], "value should be one of"),
    ],
)
def test_bad_input_is_one_line_without_traceback(arguments, message):
    done = run("--num_replicas=1", *arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    ours = [line for line in done.stderr.splitlines() if message in line]
    assert len(ours) == 1


def test_two_virtual_devices_train_to_the_closing_table():
    done = run(
        "--num_replicas=2",
        "--virtual_devices=2",
        "--image_size=8",
        "--width=0.02",
        "--steps=2",
    )
    assert done.returncode == 0, done.stderr
    for text in ("CPU:0, CPU:1", "held-out accuracy", "waiting for input"):
        assert text in done.stdout


def test_help_lists_shared_flags_and_those_of_images():
    done = run("--help")
    for name in ("--num_replicas", "--data_path", "--network", "--optimizer"):
        assert name in done.stdout
