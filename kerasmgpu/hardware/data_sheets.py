"""GPUs by name: memory, and peak floating-point operations per second.

Peaks are those of the makers' data sheets and architecture white papers,
**dense**: data sheets print twice as many for sparse matrices. A multiply-add is
two operations. Matrix units count, where a precision has them; 16-bit products
accumulate in 32 bits, as those of TensorFlow do, which halves the figure of
GeForce's advertisements (RTX 3090, 4090 and 5090).
"""

import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kerasmgpu.errors import InputError

PRECISIONS = (
    "float64",
    "float32",
    "tensor_float_32",
    "float16",
    "bfloat16",
    "float8",
)


@dataclasses.dataclass(frozen=True)
class Device:
    """A GPU.

    Attributes:
        name: String, as in `--device_memory` and `--device`: "A100-40GB".
        gigabytes: Integer, 1e9 bytes by the maker's data sheet. Drivers show
            up to 7 % more: data sheets mean units of 2**30 bytes.
        teraflops: Mapping of a precision, of `PRECISIONS`, to its peak, in
            1e12 operations per second. One that is missing has no matrix units,
            or the maker gives no figure.
        source: String, the data sheet.
        reported: Regular expression of the names that drivers report.
    """

    name: str
    gigabytes: int
    teraflops: Mapping[str, float]
    source: str
    reported: str

    def peak(self, dtype: str, tensor_float_32: bool = True) -> float | None:
        """Returns the peak of products of a data type; `None` if unknown.

        Args:
            dtype: String, data type of the factors: `"float32"`.
            tensor_float_32: Whether products of `float32` may use
                TensorFloat-32 where the device has it, as TensorFlow does by
                default (`tf.config.experimental.enable_tensor_float_32_execution`).

        Returns:
            Operations per second.
        """
        dtype = _OF_PARTS.get(dtype, dtype)
        if dtype == "float32" and tensor_float_32:
            dtype = next(
                (
                    p
                    for p in ("tensor_float_32", "float32")
                    if p in self.teraflops
                ),
                dtype,
            )
        known = self.teraflops.get(dtype)
        return None if known is None else known * 1e12


_OF_PARTS = {"complex64": "float32", "complex128": "float64"}
"""Complex products are computed by real ones."""


# Each line was compared with at least one other published table of dense peaks
# (those of Lightning, Composer, Levanter and verl, and tables of specifications)
# and agrees with it. Where tables disagree, a figure is that of the data sheet:
# - GeForce: others print sums in 16 bits (RTX 3090: 142, 4090: 330, 5090: 419);
# - RTX A6000 and RTX 6000 Ada: others print sparse figures, or half the dense ones;
# - Blackwell: data sheets give a B200 37 to 40 in float64; the lower one is taken;
# - A10G, B300, H800: no two sources agree, and they are left out.
# TensorFlow has no TensorFloat-32 on AMD's GPUs. The P100 has no matrix units.
_TABLE = """
NVIDIA Tesla P100 PCIe data sheet:
P100-16GB         16    4.7   9.3      -  18.7      -      -  P100-PCIE-16GB
NVIDIA V100 data sheet:
V100-SXM2-16GB    16    7.8  15.7      -   125      -      -  V100-SXM2-16GB
V100-SXM2-32GB    32    7.8  15.7      -   125      -      -  V100-SXM[23]-32GB
V100-PCIE-16GB    16    7.0  14.0      -   112      -      -  V100-PCIE-16GB
V100-PCIE-32GB    32    7.0  14.0      -   112      -      -  V100-PCIE-32GB
V100S-PCIE-32GB   32    8.2  16.4      -   130      -      -  V100S-PCIE-32GB
NVIDIA T4, A10, A30 and A40 data sheets:
T4                16      -   8.1      -    65      -      -  T4
A10               24      -  31.2   62.5   125    125      -  A10
A30               24   10.3  10.3     82   165    165      -  A30
A40               48      -  37.4   74.8 149.7  149.7      -  A40
NVIDIA A100 data sheet, SXM and PCIe:
A100-40GB         40   19.5  19.5    156   312    312      -  A100-(SXM4|PCIE)-40GB
A100-80GB         80   19.5  19.5    156   312    312      -  A100(-SXM4-| )80GB( PCIe)?
NVIDIA L4, L40 and L40S data sheets:
L4                24      -  30.3     60   121    121    242  L4
L40               48      -  90.5   90.5   181    181    362  L40
L40S              48      -  91.6    183   362    362    733  L40S
NVIDIA H100 white paper, NVIDIA H100 and H200 data sheets:
H100-SXM          80     67    67  494.7 989.4  989.4 1978.9  H100 80GB HBM3
H100-PCIE         80     51    51    378   756    756   1513  H100 PCIe
H100-NVL          94     60    60  417.5 835.5  835.5 1670.5  H100 NVL
H200             141     67    67  494.7 989.4  989.4 1978.9  H200
H200-NVL         141     60    60  417.5 835.5  835.5 1670.5  H200 NVL
NVIDIA HGX H20 specifications:
H20               96      1    44     74   148    148    296  H20
NVIDIA Blackwell architecture brief, HGX B200 and GB200 NVL72 data sheets:
B100             192     30    60    875  1750   1750   3500  B100
B200             180     37    75   1125  2250   2250   4500  B200
GB200            186     40    80   1250  2500   2500   5000  GB200
NVIDIA Ampere GA102, Ada and RTX Blackwell white papers:
RTX3090           24      -  35.6   35.6    71     71      -  GeForce RTX 3090
RTX4090           24      -  82.6   82.6 165.2  165.2      -  GeForce RTX 4090
RTX5090           32      - 104.8  104.8 209.5  209.5      -  GeForce RTX 5090
RTXA6000          48      -  38.7   77.4 154.8  154.8      -  RTX A6000
RTX6000ADA        48      -  91.1  182.1 364.2  364.2      -  RTX 6000 Ada Generation
AMD Instinct MI250X data sheet, one of two dies:
MI250X            64   47.9  47.9      - 191.5  191.5      -  AMD Instinct MI250X.*
AMD Instinct MI300X data sheet:
MI300X           192  163.4 163.4      - 1307.4 1307.4 2614.9 AMD Instinct MI300X( OAM)?
"""
"""Name, 1e9 bytes, peaks in the order of `PRECISIONS`, and a regular expression of
the names that drivers report."""


def _devices() -> Iterator[Device]:
    source = ""
    for line in _TABLE.strip().splitlines():
        if line.endswith(":"):
            source = line.removesuffix(":")
            continue
        name, gigabytes, *peaks, reported = line.split(maxsplit=8)
        known = {
            precision: float(peak)
            for precision, peak in zip(PRECISIONS, peaks)
            if peak != "-"
        }
        yield Device(name, int(gigabytes), known, source, reported)


DEVICES = {device.name: device for device in _devices()}
"""Maps a name to its `Device`."""

_ALIASES = {
    "V100-16GB": "V100-SXM2-16GB",
    "V100-32GB": "V100-SXM2-32GB",
    "H100-80GB": "H100-SXM",
    "H100": "H100-SXM",
}
"""Names without the form factor, which memory does not depend on."""


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).upper()


_PLAIN = {
    _plain(name): DEVICES[_ALIASES.get(name, name)]
    for name in (*DEVICES, *_ALIASES)
}


def named(name: str) -> Device | None:
    """Returns the device of a name such as "A100-40GB"; `None` if unknown.

    Case, spaces, dashes and underscores don't matter.
    """
    return _PLAIN.get(_plain(name))


def required(name: str, argument: str = "device") -> Device:
    """Returns the device of a name.

    Raises:
        InputError: If there is no such device.
    """
    device = named(name)
    if device is None:
        raise InputError(
            f"{argument} must be one of {', '.join(DEVICES)}. Received: "
            f"{argument}={name!r}"
        )
    return device


def reported(name: str) -> Device | None:
    """Returns the device that a driver reports by a name, or `None`.

    The whole name must match: a laptop's GPU, a "Ti" and a part of a GPU (MIG)
    are other devices.

    Args:
        name: String, as TensorFlow's `get_device_details` has it.

    Example:

    >>> reported("NVIDIA A100-SXM4-40GB").name
    'A100-40GB'
    """
    for device in DEVICES.values():
        if re.fullmatch(f"(NVIDIA |Tesla )?{device.reported}", name.strip()):
            return device
    return None


def counted(devices: Iterable[Any]) -> str:
    """Returns how many devices there are of each name.

    Args:
        devices: Iterable of names such as `"GPU:0 (NVIDIA H100)"` and
            `"CPU:0"`.

    Example:

    >>> counted(["GPU:0 (NVIDIA H100)", "GPU:1 (NVIDIA H100)"])
    '2 × NVIDIA H100'
    """
    kinds = collections.Counter(
        re.sub(r"^[^(]*\((?!unknown\))(.*)\)$|:\d+", r"\1", str(device))
        for device in devices
    )
    return ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
