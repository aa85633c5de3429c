"""Rates and latencies of links, from their specifications."""

import dataclasses

from kerasmgpu.errors import InputError, checked_number
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


@dataclasses.dataclass(frozen=True)
class NamedLink:
    """A link with its specified rate.

    Attributes:
        gigabytes_per_second: Float, 1e9 bytes per second in one direction.
        latency_seconds: Float, of one step of a ring.
        source: String, derivation of the rate.
    """

    gigabytes_per_second: float
    latency_seconds: float
    source: str


def _pci(generation: int, gigatransfers: float) -> NamedLink:
    # 16 lanes, 130 bits on the wire for 128 of data, 8 bits in a byte.
    return NamedLink(
        gigatransfers * 16 * 128 / 130 / 8,
        _PCI_LATENCY,
        f"PCI Express {generation}.0: {gigatransfers} GT/s x 16 lanes, 128b/130b",
    )


def _nvlink(gpu: str, links: int, gigabytes: float) -> NamedLink:
    return NamedLink(
        links * gigabytes,
        _NVLINK_LATENCY,
        f"NVIDIA {gpu} whitepaper: {links} links x {gigabytes} GB/s",
    )


def _network(gigabits: float) -> NamedLink:
    return NamedLink(
        gigabits / 8, _NET_LATENCY, f"{gigabits} Gbit/s Ethernet or InfiniBand"
    )


LINKS = {
    "pcie3": _pci(3, 8),
    "pcie4": _pci(4, 16),
    "pcie5": _pci(5, 32),
    "nvlink": _nvlink("A100", 12, 25),
    "nvlink1": _nvlink("P100", 4, 20),
    "nvlink2": _nvlink("V100", 6, 25),
    "nvlink3": _nvlink("A100", 12, 25),
    "nvlink4": _nvlink("H100", 18, 25),
    "10gbit": _network(10),
    "25gbit": _network(25),
    "100gbit": _network(100),
    "200gbit": _network(200),
    "400gbit": _network(400),
}
"""Maps a name to its `NamedLink`; `nvlink` is an A100's."""


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
        rate = named.gigabytes_per_second * PAYLOAD_SHARE
        default_latency = named.latency_seconds
    else:
        try:
            rate = float(text)
        except ValueError:
            raise InputError(
                f"--{flag} must be one of {', '.join(LINKS)}, or a number of "
                f"GB/s. Received: {text}"
            ) from None
        checked_number(rate, f"--{flag}")
        default_latency = _NET_LATENCY
    if latency_seconds is None:
        latency_seconds = default_latency
    return Link(rate * 1e9, latency_seconds)
