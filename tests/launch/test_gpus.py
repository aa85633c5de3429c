"""GPUs by variable and by a program that plays nvidia-smi."""

import os

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.launch import gpus

LISTING = """GPU 0: NVIDIA H100 (UUID: GPU-1)
  MIG 1g.10gb Device 0: (UUID: MIG-1)
GPU 1: NVIDIA H100 (UUID: GPU-2)"""


@pytest.mark.parametrize(
    "text, names",
    [
        ("", ()),
        ("-1", ()),
        ("2,3", ("2", "3")),
        ("GPU-8a, 5", ("GPU-8a", "5")),
        ("0,-1,1", ("0",)),  # CUDA stops reading at the first that is none.
    ],
)
def test_variable(text, names):
    found = gpus.visible({"CUDA_VISIBLE_DEVICES": text})
    assert found.names == names


@pytest.fixture
def nvidia_smi(tmp_path):
    """Function of a shell script to the environment that finds it."""

    def make(script):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    return make


def test_listing(nvidia_smi):
    environ = nvidia_smi(f"cat <<END\n{LISTING}\nEND")
    assert gpus.visible(environ).names == ("0", "1")


def test_broken_driver_is_told(nvidia_smi):
    environ = nvidia_smi("echo 'Driver/library version mismatch'; exit 18")
    with pytest.raises(InputError, match="status 18: Driver/library"):
        gpus.visible(environ)


def test_no_driver(tmp_path):
    assert gpus.visible({"PATH": str(tmp_path)}).names == ()


def test_workers_get_devices_in_turn():
    found = gpus.Gpus(("2", "3", "5", "7"), "a test")
    variables = [found.environment(place, 2) for place in range(2)]
    assert variables == [
        {"CUDA_VISIBLE_DEVICES": "2,3"},
        {"CUDA_VISIBLE_DEVICES": "5,7"},
    ]


def test_without_gpus_the_variable_is_left_alone():
    assert gpus.Gpus((), "a test").environment(0, 1) == {}


def test_more_workers_than_gpus():
    found = gpus.Gpus(("0", "1"), "a test")
    found.require(2, 1)
    with pytest.raises(InputError, match="need 4 GPUs. GPUs here: 2"):
        found.require(2, 2)
    gpus.Gpus((), "a test").require(4, 1)  # On the CPU.
