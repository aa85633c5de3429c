"""GPUs as the driver and TensorFlow tell them, with recorded answers."""

import pytest

from kerasmgpu.doctor.gpu_checks import gpu_facts, judge_gpus
from tests.hardware.recorded_nvml import (
    GIB,
    IDLE,
    LOST,
    Library,
    geforce,
    idle,
    install,
)

BUILD = {
    "cuda_compute_capabilities": ["sm_60", "sm_80", "sm_89", "compute_90"],
    "cuda_version": "12.5.1",
    "cudnn_version": "9",
    "is_cuda_build": True,
}
ALL = ["libcublas.so.12", "libcudart.so.12", "libcudnn.so.9"]


def tensorflow(*capabilities, libraries=ALL, **build):
    """Facts of a TensorFlow that sees GPUs of these capabilities."""
    return {
        "build": BUILD | build,
        "gpus": [{"name": "", "capability": one} for one in capabilities],
        "libraries": libraries,
    }


@pytest.fixture
def judged(monkeypatch):
    """Function of GPUs and facts of TensorFlow that returns findings by key."""

    def judge(gpus, seen, environment=None, log=(), **system):
        install(monkeypatch, Library(gpus, **system))
        found = judge_gpus(gpu_facts(), seen, environment or {}, list(log))
        return {one.key: one for one in found}

    return judge


def bad(found):
    return {key for key, one in found.items() if one.status != "ok"}


def test_a_sound_machine(judged):
    found = judged([idle(1), idle(2)], tensorflow((9, 0), (9, 0)))
    assert bad(found) == set()
    assert found["gpus_visible"].text == "the driver sees 2 GPUs, TensorFlow 2"
    assert "H100" in found["gpu"].text and "18 NVLinks 4.0" in found["gpu"].text
    assert found["links"].text.startswith("NV18")


def test_driver_too_old_for_tensorflows_cuda(judged):
    system = {
        "nvmlSystemGetDriverVersion": "470.82.01",
        "nvmlSystemGetCudaDriverVersion": 11040,
    }
    seen = tensorflow(libraries=ALL)
    found = judged([idle(1)], seen, log=["E0 x] CUDA_ERROR_X"], **system)
    assert bad(found) == {"driver_too_old", "gpus_not_seen"}
    assert "525.60.13" in found["driver_too_old"].advice
    assert found["gpus_not_seen"].text.endswith("CUDA_ERROR_X")


def test_driver_of_a_lower_minor_version(judged):
    system = {
        "nvmlSystemGetDriverVersion": "535.54.03",
        "nvmlSystemGetCudaDriverVersion": 12020,
    }
    found = judged([idle(1)], tensorflow((9, 0)), **system)
    assert bad(found) == {"driver_older_than_cuda"}


def test_missing_cudnn(judged):
    seen = tensorflow(libraries=["libcublas.so.12", "libcudart.so.12"])
    found = judged([idle(1)] * 4, seen)
    assert bad(found) == {"libraries_missing"}
    one = found["libraries_missing"]
    assert "driver sees 4 GPUs, TensorFlow 0" in one.text
    assert one.text.endswith("it does not find libcudnn")
    assert "cuDNN 9" in one.advice and one.status == "problem"


def test_tensorflow_without_cuda(judged):
    found = judged([idle(1)], tensorflow(libraries=[], is_cuda_build=False))
    assert bad(found) == {"tensorflow_without_cuda"}


def test_three_of_four_visible(judged):
    gpus, seen = (
        [idle(number) for number in range(4)],
        tensorflow(*[(9, 0)] * 3),
    )
    assert bad(judged(gpus, seen)) == {"gpus_not_seen"}
    found = judged(gpus, seen, {"CUDA_VISIBLE_DEVICES": "0,1,3"})
    assert bad(found) == {"gpus_hidden"}
    assert "CUDA_VISIBLE_DEVICES=0,1,3" in found["gpus_hidden"].text


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"nvmlDeviceGetMigMode": (1, 1)}, "mig", "MIG is on"),
        (
            {
                "nvmlDeviceGetComputeRunningProcesses_v3": [
                    {"pid": 4242, "usedGpuMemory": 29 * GIB}
                ]
            },
            "gpu_in_use",
            "by 1 process",
        ),
        (
            {"nvmlDeviceGetMemoryInfo": {"total": 80 * GIB, "used": 9 * GIB}},
            "gpu_in_use",
            "8.5 GiB",  # Half a GiB is reserved by the driver.
        ),
        (
            {"nvmlDeviceGetCurrentClocksEventReasons": 0x40},
            "throttled",
            "HW thermal slowdown",
        ),
        ({"nvmlDeviceGetCurrPcieLinkWidth": 4}, "pcie_narrow", "4 of 16"),
        (
            {"nvmlDeviceGetTotalEccErrors": 3},
            "ecc_errors",
            "3 uncorrected",
        ),
        (
            {"nvmlDeviceGetRemappedRows": (0, 1, 0, 1)},
            "ecc_errors",
            "could not be replaced",
        ),
    ],
)
def test_faults_of_one_gpu(judged, changes, key, words):
    found = judged([idle(1, **changes)], tensorflow((9, 0)))
    assert bad(found) == {key}
    assert words in found[key].text and found[key].subject == "GPU 0"


def test_no_nvlink(judged):
    gpus = [geforce(number, **IDLE) for number in (1, 2)]
    found = judged(gpus, tensorflow((8, 9), (8, 9)))
    assert bad(found) == {"no_nvlink"}
    assert found["no_nvlink"].text.startswith("SYS (the link between CPUs")


@pytest.mark.parametrize(
    ("capability", "cuda", "key"),
    [
        ((8, 6), "12.5.1", "capability"),  # By sm_80.
        ((9, 0), "12.5.1", "capability"),  # By compute_90.
        ((5, 2), "12.5.1", "capability_not_built"),
        ((12, 0), "12.5.1", "blackwell"),
        ((12, 0), "12.8.0", "capability_from_ptx"),
    ],
)
def test_capability(judged, capability, cuda, key):
    found = judged([idle(1)], tensorflow(capability, cuda_version=cuda))
    assert bad(found) == {key} - {"capability"} and key in found


def test_code_for_a_later_capability_does_not_run(judged):
    seen = tensorflow((7, 0), cuda_compute_capabilities=["sm_75", "compute_90"])
    assert bad(judged([idle(1)], seen)) == {"capability_not_built"}


def test_a_lost_gpu(judged):
    gpus = [idle(1), idle(2, nvmlDeviceGetMemoryInfo=LOST)]
    found = judged(gpus, tensorflow((9, 0)))
    assert bad(found) == {"gpu_lost"}
    assert "GPU 1" in found["gpu_lost"].text
    assert bad(judged(gpus, tensorflow())) == {"gpu_lost", "gpus_not_seen"}


def test_no_driver():
    facts = {"missing": "no NVIDIA driver: libnvidia-ml.so.1 was not found"}
    (found,) = judge_gpus(facts, tensorflow(), {}, [])
    assert (found.key, found.status) == ("no_nvml", "note")
    assert found.advice.endswith("was not found")


def test_no_names_of_a_gpu_are_kept(monkeypatch):
    install(monkeypatch, Library([idle(1)]))
    assert "GPU-0000" not in str(gpu_facts())
