"""Parses the memory of a device, given as a size or by the name of a GPU."""

import math
import re

from kerasmgpu.errors import InputError
from kerasmgpu.hardware import data_sheets

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
GPUs). A device of less than ten times as much leaves a tenth."""


def parse(text: str) -> int:
    """Returns the bytes of a device's memory.

    Args:
        text: String, a key of `data_sheets.DEVICES`, or a size such as
            `"24GiB"`.

    Raises:
        InputError: If it is neither.

    Example:

    >>> parse("1.5GiB")
    1610612736
    """
    device = data_sheets.named(str(text))
    if device is not None:
        return device.gigabytes * 10**9
    size = _SIZE.fullmatch(str(text).strip())
    if size is None or not float(size[1]):
        raise InputError(
            "device_memory must be a size above 0 with its unit, such as "
            f"24GiB, or one of {', '.join(data_sheets.DEVICES)}. Received: "
            f"device_memory={text!r}"
        )
    return math.floor(float(size[1]) * _UNITS[size[2].upper()])


def usable(num_bytes: int) -> int:
    """Returns how many bytes of a device TensorFlow allocates for tensors."""
    return num_bytes - min(_LEFT_TO_CUDA, num_bytes // 10)
