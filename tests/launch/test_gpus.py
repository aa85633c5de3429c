"""GPUs by variable and by a program that plays nvidia-smi."""

import os
import sys

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.launch import gpus
from kerasmgpu.launch.__main__ import run as launch
from tests.hardware import false_driver
from tests.hardware.eight_gpus import MACHINES, sound_box
from tests.hardware.recorded_nvml import uuid

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


UNREACHABLE = {"fallen_off", "no_power"} | {
    f"{how}_since_tensorflow" for how in ("lost", "unknown")
}
WORKERS = {"allotted_two": 2, "chosen_three": 3, "chosen_and_missing": 3}


@pytest.mark.parametrize("name", MACHINES)
def test_launch(monkeypatch, tmp_path, name):
    said = false_driver.launch(monkeypatch, MACHINES[name](), tmp_path)
    if name in UNREACHABLE:
        others = ",".join(uuid(n) for n in (1, 2, 3, 5, 6, 7, 8))
        assert said.startswith("nvidia-smi -L can't reach a GPU: Unable to")
        assert said.endswith(
            f"on the others with CUDA_VISIBLE_DEVICES={others}"
        )
    elif name.startswith("nvml"):
        assert said.startswith("nvidia-smi -L failed with status 9: NVIDIA-SMI")
    else:
        assert f"workers: {WORKERS.get(name, 8)}" in said
        assert ("MIG is on for GPUs 0, 1, 2, 3" in said) == (name == "divided")


def test_launch_where_nothing_lists_the_gpus(monkeypatch, tmp_path):
    """As in a container that has the GPUs, but not the driver's programs."""
    for number in (0, 1):
        (tmp_path / f"nvidia{number}").touch()
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(gpus, "_DEVICES", tmp_path)
    said = false_driver.launch(monkeypatch, sound_box(), tmp_path, script="")
    assert (
        f"no nvidia-smi to list {tmp_path}/nvidia0, {tmp_path}/nvidia1 (name "
        "GPUs by CUDA_VISIBLE_DEVICES), so there is one worker; --num_workers=2"
    ) in " ".join(said.split())


def test_launch_where_there_is_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "_DEVICES", tmp_path)
    said = false_driver.launch(monkeypatch, sound_box(), tmp_path, script="")
    assert (
        "There is no GPU here (no nvidia-smi), so there is one worker, on"
        in said
    )


def test_launch_where_the_driver_does_not_answer(monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "_SECONDS_TO_LIST", 0.1)
    script = "#!/bin/sh\nexec /bin/sleep 60\n"
    said = false_driver.launch(monkeypatch, sound_box(), tmp_path, script)
    assert said.startswith("nvidia-smi -L did not answer within 0.1 s: check")


def test_a_job_that_fails_beside_a_lost_gpu(nvidia_smi, capfd):
    """The listing is sound at the start, and lacks a GPU when all is over."""
    told = MACHINES["fallen_off"]().listing
    script = f"cat <<END\n{LISTING}\nEND"
    environ = nvidia_smi(
        f'if [ -e "$0.lost" ]; then cat <<END\n{told}END\nexit 255; fi\n{script}'
    )
    folder = environ["PATH"].partition(":")[0]
    failing = f"open('{folder}/nvidia-smi.lost', 'w'); raise SystemExit(3)"
    command = [sys.executable, "-c", failing]
    assert launch(command, environ=environ, num_workers=1) == 3
    said = capfd.readouterr().err
    assert "worker 0 on 127.0.0.1 failed first: exit status 3" in said
    assert "nvidia-smi -L can't reach a GPU: Unable to determine" in said


def test_a_job_that_fails_by_itself(nvidia_smi):
    environ = nvidia_smi(f"cat <<END\n{LISTING}\nEND")
    found = gpus.visible(environ)
    assert gpus.lost(found, environ) == ""
    assert gpus.lost(gpus.Gpus((), "a test"), nvidia_smi("exit 9")) == ""
