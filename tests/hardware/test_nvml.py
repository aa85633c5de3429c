"""What NVML says of GPUs, and what it fails with."""

import builtins
import sys

import pynvml
import pytest

from kerasmgpu.hardware import cuda_devices
from kerasmgpu.hardware.gpu import GpuLost
from kerasmgpu.hardware.nvml import open_nvml
from tests.hardware.recorded_nvml import (
    GIB,
    LOST,
    MISSING,
    Error,
    Library,
    geforce,
    h100,
    install,
    uuid,
)


@pytest.fixture
def opened(monkeypatch):
    """Function that returns the `Nvml` of GPUs with recorded answers."""

    def start(*gpus, **system):
        install(monkeypatch, Library(list(gpus), **system))
        nvml, reason = open_nvml()
        assert reason == ""
        return nvml

    return start


def test_a_sample(opened):
    nvml = opened(h100(0x0A))
    assert (nvml.driver_version, nvml.cuda_version) == ("570.86.15", "12.8")
    (gpu,) = nvml.gpus
    assert gpu.sample() == {
        "name": "NVIDIA H100 80GB HBM3",
        "utilization": 0.97,
        "memory_bytes": 30 * GIB,
        "memory_total_bytes": 80 * GIB,
        "temperature_celsius": 61,
        "power_watts": 652.15,
        "sm_clock_mhz": 1755,
        "memory_clock_mhz": 2619,
        "throttle_reasons": ["SW power cap", "SW thermal slowdown"],
        "nvlink_rx_bytes": 7 * 1024,
        "nvlink_tx_bytes": 8 * 1024,
        "pcie_rx_bytes_per_second": 340_000,
        "pcie_tx_bytes_per_second": 1_200_000,
    }


def test_a_description(opened):
    (gpu,) = opened(h100(0x0A)).gpus
    assert gpu.describe() == {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": uuid(0x0A),
        "pci_bus_id": "00000000:0A:00.0",
        "memory_total_bytes": 80 * GIB,
        "memory_reserved_bytes": GIB // 2,
        "power_limit_watts": 700.0,
        "sm_clock_max_mhz": 1980,
        "memory_clock_max_mhz": 2619,
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_generation_of_gpu": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "mig_mode": False,
        "ecc_mode": True,
        "ecc_uncorrected_errors": 2,
        "remapped_rows_pending": True,
        "remapped_rows_failed": False,
        "processes": [{"pid": 4242, "memory_bytes": 29 * GIB}],
    }


def test_what_a_gpu_does_not_support_is_left_out(opened):
    (gpu,) = opened(geforce(1, nvmlDeviceGetUtilizationRates=MISSING)).gpus
    keys = {*gpu.sample(), *gpu.describe()}
    assert "utilization" not in keys
    assert not any(key.startswith(("nvlink", "ecc", "mig")) for key in keys)
    assert {"temperature_celsius", "processes"} <= keys


def test_a_measured_nothing_is_no_missing_answer(opened):
    idle = h100(
        1,
        nvmlDeviceGetUtilizationRates={"gpu": 0, "memory": 0},
        nvmlDeviceGetCurrentClocksEventReasons=0,
        nvmlDeviceGetPcieThroughput=0,
        nvmlDeviceGetComputeRunningProcesses_v3=[],
    )
    (gpu,) = opened(idle).gpus
    sample = gpu.sample()
    assert sample["utilization"] == 0
    assert sample["throttle_reasons"] == []
    assert sample["pcie_rx_bytes_per_second"] == 0
    assert gpu.describe()["processes"] == []


def test_a_driver_that_lacks_newer_functions(opened):
    """As before version 510: no event reasons, no third form of processes."""
    old = h100(1, nvmlDeviceGetCurrentClocksThrottleReasons=0x1)
    del old["nvmlDeviceGetCurrentClocksEventReasons"]
    del old["nvmlDeviceGetComputeRunningProcesses_v3"]
    (gpu,) = opened(old).gpus
    assert gpu.sample()["throttle_reasons"] == ["idle"]
    assert "processes" not in gpu.describe()


def test_an_unknown_error_leaves_the_figure_out(opened):
    unknown = Error(pynvml.NVML_ERROR_UNKNOWN)
    (gpu,) = opened(h100(1, nvmlDeviceGetPowerUsage=unknown)).gpus
    assert "power_watts" not in gpu.sample()


def test_permission_is_noted(opened):
    denied = Error(pynvml.NVML_ERROR_NO_PERMISSION)
    (gpu,) = opened(h100(1, nvmlDeviceGetTotalEccErrors=denied)).gpus
    assert "ecc_uncorrected_errors" not in gpu.describe()
    assert gpu.denied == {"nvmlDeviceGetTotalEccErrors"}


def test_a_gpu_that_is_lost_between_two_samples(opened):
    answers = h100(3)
    nvml = opened(h100(2), answers)
    gpu = nvml.gpus[1]
    gpu.sample()
    answers.update(dict.fromkeys(answers, LOST))
    with pytest.raises(GpuLost) as raised:
        gpu.sample()
    assert str(raised.value) == (
        f"GPU 1 ({uuid(3)}) is lost: it fell off the bus. Look for Xid 79 in "
        "`dmesg`, and restart the machine"
    )
    assert nvml.gpus[0].sample()["utilization"] == 0.97


def test_a_gpu_that_needs_a_reset(opened):
    answers = h100(3)
    (gpu,) = opened(answers).gpus
    answers["nvmlDeviceGetUtilizationRates"] = Error(
        pynvml.NVML_ERROR_RESET_REQUIRED
    )
    with pytest.raises(GpuLost, match=r"GPU 0 \(GPU-0.*needs a reset"):
        gpu.sample()


def test_a_gpu_that_was_lost_before(opened):
    nvml = opened(h100(2), LOST, h100(4))
    assert [gpu.index for gpu in nvml.gpus] == [0, 2]
    (line,) = nvml.lost
    assert line.startswith("GPU 1 is lost: it fell off the bus.")


def test_a_mig_instance_has_its_memory_and_its_gpus_temperature(opened):
    whole = h100(
        1, nvmlDeviceGetMigMode=(1, 1), nvmlDeviceGetUtilizationRates=MISSING
    )
    instance = {
        "nvmlDeviceGetUUID": "MIG-00000001-0000-4000-8000-000000000000",
        "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "nvmlDeviceGetMemoryInfo": {"total": 10 * GIB, "used": GIB},
        "nvmlDeviceGetComputeRunningProcesses_v3": [],
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": 1,
    }
    # NVML counts whole GPUs; instances have handles, too.
    nvml = opened(whole, instance, nvmlDeviceGetCount_v2=1)
    gpu = nvml.find("MIG-00000001-0000-4000-8000-000000000000")
    sample, description = gpu.sample(), gpu.describe()
    assert sample["memory_total_bytes"] == 10 * GIB
    assert sample["temperature_celsius"] == 61
    assert sample["name"].endswith("1g.10gb")
    assert "utilization" not in sample
    assert description["mig_mode"] is True
    assert description["processes"] == []
    assert gpu.index == 0


@pytest.mark.parametrize(
    "error, reason",
    [
        ("LIBRARY_NOT_FOUND", "libnvidia-ml.so.1 was not found"),
        ("DRIVER_NOT_LOADED", "the NVIDIA driver is not loaded"),
        ("LIB_RM_VERSION_MISMATCH", "different versions, as after an update"),
        ("NO_PERMISSION", "no permission to read"),
        ("UNKNOWN", "NVML failed: Unknown Error"),
    ],
)
def test_nvml_that_does_not_start(monkeypatch, error, reason):
    code = Error(getattr(pynvml, f"NVML_ERROR_{error}"))
    install(monkeypatch, Library([], nvmlInitWithFlags=code))
    nvml, line = open_nvml()
    assert nvml is None
    assert reason in line and "\n" not in line


def test_a_machine_without_the_library(monkeypatch):
    install(monkeypatch, None)
    monkeypatch.setattr(pynvml, "CDLL", _no_library)
    assert open_nvml()[1].startswith("no NVIDIA driver: libnvidia-ml.so.1")


def test_a_machine_without_the_package(monkeypatch):
    importing = builtins.__import__

    def refuse(name, *arguments, **keywords):
        if name == "pynvml":
            raise ModuleNotFoundError(name)
        return importing(name, *arguments, **keywords)

    monkeypatch.delitem(sys.modules, "pynvml")
    monkeypatch.setattr(builtins, "__import__", refuse)
    nvml, reason = open_nvml()
    assert nvml is None
    assert "pip install nvidia-ml-py" in reason


def test_asking_after_the_end_is_an_error(opened):
    nvml = opened(h100(1))
    (gpu,) = nvml.gpus
    nvml.close()
    pynvml.nvmlLib.gpus[0].update(
        nvmlDeviceGetUtilizationRates=Error(pynvml.NVML_ERROR_UNINITIALIZED)
    )
    with pytest.raises(pynvml.NVMLError, match="Uninitialized"):
        gpu.sample()


class Driver:
    """CUDA's driver, which numbers two GPUs in the reverse order of NVML."""

    def __init__(self, octets):
        self.octets = octets

    def cuInit(self, flags):
        return 0

    def cuDeviceGet(self, device, ordinal):
        device._obj.value = ordinal
        return 0 if ordinal < len(self.octets) else 101  # Invalid device.

    def cuDeviceGetUuid_v2(self, octets, device):
        octets.raw = self.octets[device.value]
        return 0


def test_cuda_numbers_gpus_in_another_order(opened, monkeypatch):
    octets = [bytes.fromhex(f"{n:08x}000040008000000000000000") for n in (8, 7)]
    monkeypatch.setattr(cuda_devices, "_driver", lambda: Driver(octets))
    nvml = opened(h100(7), h100(8))
    assert [nvml.of_cuda_device(number).index for number in (0, 1)] == [1, 0]
    assert nvml.of_cuda_device(2) is None


def test_without_a_cuda_driver(monkeypatch):
    monkeypatch.setattr(cuda_devices.ctypes, "CDLL", _no_library)
    assert cuda_devices.uuids(0) == []


def _no_library(name):
    raise OSError(f"{name}: cannot open shared object file")
