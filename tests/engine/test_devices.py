import subprocess
import sys

import pytest
import tensorflow as tf

from kerasmgpu.engine import devices
from kerasmgpu.errors import InputError


def test_all_logical_cpus_where_there_is_no_gpu():
    assert devices.choose() == [f"CPU:{i}" for i in range(8)]


def test_the_first_ones_of_a_number():
    assert devices.choose(num_replicas=3) == ["CPU:0", "CPU:1", "CPU:2"]


def test_named_devices_in_any_spelling():
    names = ["cpu:1", "/device:CPU:4", "/job:localhost/device:CPU:0"]
    assert devices.choose(devices=names) == ["CPU:1", "CPU:4", "CPU:0"]


def test_virtual_devices_that_were_made_before():
    assert devices.choose(virtual_devices=2) == ["CPU:0", "CPU:1"]


@pytest.mark.parametrize("number", [0, -1, 1.5, True])
@pytest.mark.parametrize("name", ["num_replicas", "virtual_devices"])
def test_numbers_that_are_no_count(name, number):
    with pytest.raises(InputError, match=f"{name}={number}"):
        devices.choose(**{name: number})


def test_more_replicas_than_devices_says_what_is_visible_and_how_to_go_on():
    with pytest.raises(InputError) as caught:
        devices.choose(num_replicas=9)
    message = str(caught.value)
    assert "8 CPU devices are visible" in message
    assert "virtual_devices=9" in message
    assert "\n" not in message


def test_logical_devices_after_tensorflow_has_started():
    with pytest.raises(InputError, match="started with 8 CPU device"):
        devices.choose(virtual_devices=9)


@pytest.mark.slow
def test_commands_leave_programs_room_for_logical_devices():
    """In a process of its own, whose TensorFlow starts with it."""
    code = """
from kerasmgpu.engine import devices
devices.leave_room()
assert devices.choose() == ["CPU:0"]
assert devices.choose(virtual_devices=3) == ["CPU:0", "CPU:1", "CPU:2"]
assert len(devices.choose()) == 3
assert len(devices.choose(virtual_devices=2)) == 2
try:
    devices.choose(virtual_devices=65)
except ValueError as error:
    assert "started with 64 CPU" in str(error)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_unknown_device_lists_the_visible_ones():
    with pytest.raises(InputError, match="'GPU:5'.*CPU:7"):
        devices.choose(devices=["GPU:5"])


@pytest.mark.parametrize(
    "names, words",
    [
        ("CPU:0", "must be a list"),
        ([], "must be a list"),
        (["CPU:0", "cpu:0"], "of its own"),
    ],
)
def test_names_that_are_no_list_of_different_devices(names, words):
    with pytest.raises(InputError, match=words):
        devices.choose(devices=names)


def test_names_and_a_number_contradict_each_other():
    with pytest.raises(InputError, match="not both"):
        devices.choose(num_replicas=2, devices=["CPU:0"])


def test_logical_gpus_know_their_physical_ones(monkeypatch):
    """The first of three GPUs is hidden, and the last divided in two."""
    physical = tf.config.PhysicalDevice
    first, last = (
        physical(f"/physical_device:GPU:{number}", "GPU") for number in (1, 2)
    )
    parts = {last: [tf.config.LogicalDeviceConfiguration(memory_limit=99)] * 2}
    config = devices.tf.config
    monkeypatch.setattr(
        config, "get_visible_devices", lambda kind: [last, first]
    )
    monkeypatch.setattr(config, "get_logical_device_configuration", parts.get)
    assert devices.physical_gpus() == {"GPU:0": 2, "GPU:1": 2, "GPU:2": 1}


def test_of_unlike_gpus_the_smallest_counts(monkeypatch):
    """TensorFlow numbers the fastest first; parts of a GPU are unknown."""
    sizes = {"GPU:0": 80, "GPU:1": 24, "GPU:2": None}
    monkeypatch.setattr(devices, "memory_of", sizes.get)
    assert devices.smallest_memory(["GPU:0", "GPU:1"]) == 24
    assert devices.smallest_memory(["GPU:0", "GPU:2"]) == 80
    assert devices.smallest_memory(["GPU:2"]) is None
