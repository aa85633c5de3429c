"""GPUs as CUDA names and numbers them: the UUID is asked of its driver.

CUDA numbers the GPUs that `CUDA_VISIBLE_DEVICES` names (by index, UUID or MIG
instance), the fastest first unless `CUDA_DEVICE_ORDER` is `PCI_BUS_ID`; NVML
numbers all GPUs, by PCI bus. Only the driver knows which is which.
"""

import ctypes
import uuid
from typing import Any

VARIABLE = "CUDA_VISIBLE_DEVICES"


def uuids(ordinal: int) -> list[str]:
    """Returns the names by which NVML may know one of CUDA's devices.

    Creates no CUDA context.

    Args:
        ordinal: Integer, CUDA's number of the device in this process.

    Returns:
        List of strings, as of a GPU and as of a MIG instance; empty without a
        CUDA driver (AMD's GPUs) or device.
    """
    driver = _driver()
    if driver is None or driver.cuInit(0):
        return []
    device, octets = ctypes.c_int(), ctypes.create_string_buffer(16)
    if driver.cuDeviceGet(ctypes.byref(device), ordinal):
        return []
    # The second version tells the UUID of a MIG instance, not of its GPU.
    if driver.cuDeviceGetUuid_v2(octets, device):
        return []
    text = uuid.UUID(bytes=octets.raw)
    return [f"GPU-{text}", f"MIG-{text}"]


def named(text: str) -> tuple[str, ...]:
    """Parses `CUDA_VISIBLE_DEVICES` as CUDA does.

    Names behind a -1, or another one that is no device, are not visible.

    Example:

    >>> named("2, 3,-1,4")
    ('2', '3')
    """
    names = []
    for name in text.split(","):
        name = name.strip()
        if not name or name.startswith("-") or name == "NoDevFiles":
            break
        names.append(name)
    return tuple(names)


def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
