"""The command as a person runs it, in a process of its own."""

import pytest

from tests import console


@pytest.mark.slow
def test_without_a_gpu_two_logical_cpus_stand_in():
    """They can be made only before anything is computed."""
    done = console.run(
        "deepconn",
        "--placement=dual",
        "--steps=2",
        "--words=20",
        "--profile_steps=0",
    )
    assert done.returncode == 0, done.stderr
    assert "2 logical CPU devices stand in" in done.stdout
    assert "CPU:0, CPU:1" in done.stdout
