"""`kerasmgpu COMMAND`: what it finds, and what it says where it finds nothing."""

import re
import subprocess
import sys

import pytest

import kerasmgpu
from kerasmgpu import __main__ as commands
from tests import console


def test_all_commands_are_listed_in_lines_of_80():
    done = console.run()
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    for name in commands.COMMANDS:
        assert any(line.startswith(f"  {name} ") for line in lines)
    assert max(map(len, lines)) <= 80


def test_the_version_is_the_packages():
    assert (
        console.run("--version").stdout
        == f"kerasmgpu {kerasmgpu.__version__}\n"
    )


def test_an_unknown_command_ends_with_the_nearest():
    done = console.run("autoencodr", "--epochs=1")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: unknown command. Received: autoencodr; ")
    assert "autoencoder" in line


@pytest.mark.nightly(but=6)
@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_is_that_of_the_module(name):
    done = console.run(name, "--help")
    module, _ = commands.COMMANDS[name]
    assert done.returncode == 0
    assert len(done.stdout) > 500
    (heading,) = re.findall(r"^flags:\n\n(.*):$", done.stdout, re.MULTILINE)
    assert heading == f"python -m {module}"
    if name != "verify":  # One of them stands for all.
        return
    same = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True
    )
    assert same.returncode == 0
    assert done.stdout.splitlines()[:20] == same.stdout.splitlines()[:20]
