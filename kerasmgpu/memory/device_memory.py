"""Memory of devices: sizes as text, and GPUs by name."""

import dataclasses
import math
import re

from kerasmgpu.errors import InputError

_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?B)", re.IGNORECASE)

_LEFT_TO_CUDA = 1536 << 20
"""Bytes of a GPU that TensorFlow leaves to CUDA and its libraries, for compute
capability 8 (`MinSystemMemory` in TensorFlow's `gpu_device.cc`; less on older
GPUs). A tenth of devices with less than ten times as much."""


@dataclasses.dataclass(frozen=True)
class NamedDevice:
    """A GPU.

    Attributes:
        gigabytes: Integer, 1e9 bytes by the maker's data sheet. Drivers show
            up to 7 % more: data sheets mean units of 2**30 bytes.
        source: String, the data sheet.
    """

    gigabytes: int
    source: str


DEVICES = {
    "P100-16GB": NamedDevice(16, "NVIDIA Tesla P100 PCIe data sheet"),
    "V100-16GB": NamedDevice(16, "NVIDIA V100 data sheet"),
    "V100-32GB": NamedDevice(32, "NVIDIA V100 data sheet"),
    "T4": NamedDevice(16, "NVIDIA T4 data sheet"),
    "A10": NamedDevice(24, "NVIDIA A10 data sheet"),
    "A30": NamedDevice(24, "NVIDIA A30 data sheet"),
    "A40": NamedDevice(48, "NVIDIA A40 data sheet"),
    "A100-40GB": NamedDevice(40, "NVIDIA A100 data sheet"),
    "A100-80GB": NamedDevice(80, "NVIDIA A100 data sheet"),
    "L4": NamedDevice(24, "NVIDIA L4 data sheet"),
    "L40S": NamedDevice(48, "NVIDIA L40S data sheet"),
    "H100-80GB": NamedDevice(80, "NVIDIA H100 data sheet, SXM and PCIe"),
    "H100-NVL": NamedDevice(94, "NVIDIA H100 data sheet, NVL"),
    "H200": NamedDevice(141, "NVIDIA H200 data sheet"),
    "RTX3090": NamedDevice(24, "NVIDIA GeForce RTX 3090 specifications"),
    "RTX4090": NamedDevice(24, "NVIDIA GeForce RTX 4090 specifications"),
    "RTX5090": NamedDevice(32, "NVIDIA GeForce RTX 5090 specifications"),
    "RTXA6000": NamedDevice(48, "NVIDIA RTX A6000 data sheet"),
    "MI250X": NamedDevice(
        64, "AMD Instinct MI250X data sheet, one of two dies"
    ),
    "MI300X": NamedDevice(192, "AMD Instinct MI300X data sheet"),
}
"""Maps a name to its `NamedDevice`."""


def parse(text: str) -> int:
    """Returns the bytes of a device.

    Args:
        text: String, a key of `DEVICES` or a size such as `"24GiB"`.

    Raises:
        InputError: If it is neither.

    Example:

    >>> parse("1.5GiB")
    1610612736
    """
    name = re.sub(r"[\s_]", "", str(text)).upper()
    if name in DEVICES:
        return DEVICES[name].gigabytes * 10**9
    size = _SIZE.fullmatch(str(text).strip())
    if size is None or not float(size[1]):
        raise InputError(
            "device_memory must be a size above 0 with its unit, such as "
            f"24GiB, or one of {', '.join(DEVICES)}. Received: "
            f"device_memory={text!r}"
        )
    return math.floor(float(size[1]) * _UNITS[size[2].upper()])


def usable(num_bytes: int) -> int:
    """Returns the bytes of a device that TensorFlow allocates for tensors."""
    return num_bytes - min(_LEFT_TO_CUDA, num_bytes // 10)
