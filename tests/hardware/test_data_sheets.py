"""GPUs by the names that drivers report, and their peaks."""

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.hardware import data_sheets


@pytest.mark.parametrize(
    "reported, name",
    [
        ("Tesla P100-PCIE-16GB", "P100-16GB"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("Tesla V100-SXM3-32GB", "V100-SXM2-32GB"),
        ("Tesla V100-PCIE-32GB", "V100-PCIE-32GB"),
        ("Tesla V100S-PCIE-32GB", "V100S-PCIE-32GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A30", "A30"),
        ("NVIDIA A40", "A40"),
        ("A100-SXM4-40GB", "A100-40GB"),  # Drivers before 470.
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIE"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", "H200-NVL"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA GeForce RTX 5090", "RTX5090"),
        ("NVIDIA RTX A6000", "RTXA6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000ADA"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_reported_names(reported, name):
    assert data_sheets.reported(reported).name == name


@pytest.mark.parametrize(
    "reported",
    [
        "",
        "unknown",
        "NVIDIA A10G",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "Quadro T4",
    ],
)
def test_other_devices_have_no_peak(reported):
    assert data_sheets.reported(reported) is None


def test_peaks_are_dense_and_by_precision():
    h100 = data_sheets.required("h100-sxm")
    assert h100.peak("float16") == h100.peak("bfloat16") == 989.4e12
    assert h100.peak("float32") == 494.7e12
    assert h100.peak("float32", tensor_float_32=False) == 67e12
    assert h100.peak("complex128") == h100.peak("float64") == 67e12
    t4 = data_sheets.required("T4")
    assert t4.peak("float32") == 8.1e12  # It has no TensorFloat-32.
    assert t4.peak("bfloat16") is None


@pytest.mark.parametrize("device", data_sheets.DEVICES.values())
def test_peaks_grow_with_fewer_bits(device):
    order = ("float64", "float32", "tensor_float_32", "float16", "float8")
    peaks = [device.teraflops[p] for p in order if p in device.teraflops]
    assert peaks == sorted(peaks)
    assert {"float32", "float16"} <= set(device.teraflops)
    # No data sheet has more than 32 times as much for 16 bits: the sparse
    # figure is in none of these columns.
    if "tensor_float_32" in device.teraflops and "RTX" not in device.name:
        ratio = (
            device.teraflops["float16"] / device.teraflops["tensor_float_32"]
        )
        assert ratio == pytest.approx(2, rel=0.02)


def test_names():
    assert data_sheets.named("a100_40gb").gigabytes == 40
    assert data_sheets.named("H100-80GB").name == "H100-SXM"
    assert data_sheets.named("A100") is None
    with pytest.raises(
        InputError, match="device must be one of P100-16GB, V100"
    ):
        data_sheets.required("A100")


@pytest.mark.parametrize(
    "devices, text",
    [
        (["GPU:0 (A100)", "GPU:1 (A100)", "CPU:0"], "2 × A100, 1 × CPU"),
        (["GPU:0 (Quadro (old))", "GPU:1"], "1 × Quadro (old), 1 × GPU"),
        (["GPU:0 (unknown)"], "1 × GPU (unknown)"),
    ],
)
def test_devices_are_counted_by_name(devices, text):
    assert data_sheets.counted(devices) == text
