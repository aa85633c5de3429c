"""The command as a person runs it, each in a process of its own."""

import pytest

from tests import console


@pytest.mark.slow
def test_two_virtual_devices_train_to_the_closing_table():
    done = console.run(
        "alexnet",
        "--num_replicas=2",
        "--virtual_devices=2",
        "--image_size=8",
        "--width=0.02",
        "--steps=2",
        "--held_out=0.01",
    )
    assert done.returncode == 0, done.stderr
    for text in ("CPU:0, CPU:1", "held-out accuracy", "waiting for input"):
        assert text in done.stdout
