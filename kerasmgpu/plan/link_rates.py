"""Rates and latencies of links, from their specifications."""

import dataclasses

from kerasmgpu.errors import InputError, checked_number
from kerasmgpu.hardware.gpu_links import nvlink_rate, pcie_rate
from kerasmgpu.plan.step_time import Link

PAYLOAD_SHARE = 0.9
"""Share of a link's rate that is data, the same for all named links.

A PCIe packet carries 256 bytes of data and 24 to 28 of framing, header and
checksum; links also acknowledge (PCI Express Base Specification 3.0, chapters
2 and 3; Neugebauer et al., "Understanding PCIe performance for end host
networking", SIGCOMM 2018, section 3). A RoCE v2 packet carries 1,024 bytes and
about 80 of headers and gaps (InfiniBand specification, annex A17). NVLink
carries up to 256 bytes with 16 to 32 of header.
"""

# Seconds of one step of a ring: `hwLat`, the constants with which NCCL 2
# predicts its algorithms' times (src/graph/tuning.cc, ring, protocol Simple).
_NVLINK_LATENCY = 3.4e-6
_PCI_LATENCY = 5.7e-6
_NET_LATENCY = 14.0e-6


def _link(gigabytes: float, latency_seconds: float) -> Link:
    return Link(gigabytes * PAYLOAD_SHARE * 1e9, latency_seconds)


_A100 = _link(nvlink_rate("3.0", links=12), _NVLINK_LATENCY)
LINKS = {
    **{
        f"pcie{generation}": _link(pcie_rate(generation, 16), _PCI_LATENCY)
        for generation in (3, 4, 5)
    },
    "nvlink": _A100,
    "nvlink1": _link(nvlink_rate("1.0", links=4), _NVLINK_LATENCY),  # P100
    "nvlink2": _link(nvlink_rate("2.0", links=6), _NVLINK_LATENCY),  # V100
    "nvlink3": _A100,
    "nvlink4": _link(nvlink_rate("4.0", links=18), _NVLINK_LATENCY),  # H100
    **{
        f"{gigabits}gbit": _link(gigabits / 8, _NET_LATENCY)
        for gigabits in (10, 25, 100, 200, 400)
    },
}
"""Maps a name to its `Link`."""


def link(
    text: str, latency_seconds: float | None = None, flag: str = "link"
) -> Link:
    """Returns the `Link` of a name, or of a measured rate.

    Args:
        text: String, a key of `LINKS`, or a measured rate in gigabytes (1e9
            bytes) per second of data in one direction.
        latency_seconds: Float. Default: the named link's; for a rate, that of
            a network.
        flag: String, name of the flag in messages.

    Raises:
        InputError: If `text` is neither, or a number is out of range.

    Example:

    >>> link("12.5", latency_seconds=0).bytes_per_second
    12500000000.0
    """
    if latency_seconds is not None:
        checked_number(latency_seconds, f"{flag} latency", zero_allowed=True)
    if text in LINKS:
        named = LINKS[text]
    else:
        try:
            rate = float(text)
        except ValueError:
            raise InputError(
                f"--{flag} must be one of {', '.join(LINKS)}, or a number of "
                f"GB/s. Received: {text}"
            ) from None
        checked_number(rate, f"--{flag}")
        named = Link(rate * 1e9, _NET_LATENCY)
    if latency_seconds is None:
        return named
    return dataclasses.replace(named, latency_seconds=latency_seconds)
