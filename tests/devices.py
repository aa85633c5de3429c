"""The devices that tests put replicas on: logical CPUs, or parts of a GPU.

    KERASMGPU_TEST_GPUS=8 python -m pytest tests/strategies tests/parity

divides the first GPU into eight logical ones. Tests that are about CPUs, or that
start processes of their own, stay on CPUs.
"""

import contextlib
import os

NUM_GPUS = int(os.environ.get("KERASMGPU_TEST_GPUS", "0"))
"""Logical GPUs to divide the first GPU into; 0 for tests on the CPU."""

MEGABYTES = int(os.environ.get("KERASMGPU_TEST_GPU_MEGABYTES", "512"))
"""Memory of a logical GPU."""


def device_name(index):
    """The name of the device of replica `index`, such as `"CPU:1"`."""
    return f"{'GPU' if NUM_GPUS else 'CPU'}:{index}"


def device_names(count):
    """The names of the devices of `count` replicas."""
    return [device_name(index) for index in range(count)]


@contextlib.contextmanager
def running_as_gpus(is_so=True):
    """Replicas on logical CPUs run the program that GPUs would get, if so."""
    from kerasmgpu.engine import devices

    before = devices.runs_as_gpus()
    devices._runs_as_gpus = is_so
    try:
        yield
    finally:
        devices._runs_as_gpus = before
