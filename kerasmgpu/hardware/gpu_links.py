"""How the GPUs of a machine are connected: NVLink and PCIe."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from kerasmgpu.hardware.gpu import Gpu

_VERSIONS = ("", "1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0", "6.0")
"""NVLink's versions, by NVML's number (`NVML_NVLINK_VERSION_…`)."""
_NVLINK = {"1.0": 20.0, "5.0": 50.0, "6.0": 100.0}
"""GB/s of one link in one direction, by version; 25 for all others (NVIDIA's
whitepapers of P100, V100, A100, H100 and B200)."""
_PCIE = {
    3: (8, 128 / 130),
    4: (16, 128 / 130),
    5: (32, 128 / 130),
    6: (64, 242 / 256),
}
"""GT/s of a lane, and the share of them that is data, by generation."""
WORDS = {
    "NV": "that many NVLinks",
    "PIX": "at most one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "a PCIe host bridge, in the CPU",
    "NODE": "PCIe host bridges of one NUMA node",
    "SYS": "the link between CPUs: the slowest",
}
"""Maps the words of `topology` to what the data pass."""


@dataclasses.dataclass(frozen=True)
class NvLinks:
    """The active NVLinks of a GPU.

    Attributes:
        version: String such as `"4.0"`; empty if unknown, or without a link.
        peers: Dictionary that maps the PCI address `(domain, bus, device)` of
            a GPU to the number of links that lead to it.
        to_switches: Integer, number of links to NVSwitches.
    """

    version: str
    peers: dict[tuple[int, int, int], int]
    to_switches: int

    @property
    def count(self) -> int:
        """Integer, number of active links."""
        return sum(self.peers.values()) + self.to_switches


def nvlink_rate(version: str, links: int) -> float:
    """Returns 1e9 bytes per second of NVLinks, in one direction."""
    return links * _NVLINK.get(version, 25.0)


def pcie_rate(generation: int, lanes: int) -> float:
    """Returns 1e9 bytes per second of PCIe lanes; 0 if unknown."""
    gigatransfers, share = _PCIE.get(generation, (0, 0.0))
    return gigatransfers * share * lanes / 8


def nvlinks(gpu: Gpu) -> NvLinks:
    """Returns the active NVLinks of a GPU.

    Raises:
        GpuLost: See `Gpu.sample`.
    """
    api, ask = gpu.api, gpu.ask
    version, to_switches = "", 0
    peers: dict[tuple[int, int, int], int] = collections.Counter()
    for link in range(api.NVML_NVLINK_MAX_LINKS):
        active = ask(api.nvmlDeviceGetNvLinkState, link)
        if active is None:  # The GPU has no link of this number, or none.
            break
        if not active:
            continue
        number = ask(api.nvmlDeviceGetNvLinkVersion, link)
        if number is not None and number < len(_VERSIONS):
            version = _VERSIONS[number]
        kind = ask(api.nvmlDeviceGetNvLinkRemoteDeviceType, link)
        pci = ask(api.nvmlDeviceGetNvLinkRemotePciInfo, link)
        if kind == api.NVML_NVLINK_DEVICE_TYPE_SWITCH or pci is None:
            to_switches += 1
        else:
            peers[_address(pci)] += 1
    return NvLinks(version, dict(peers), to_switches)


def counted(gpu: Gpu) -> dict[str, Any]:
    """Returns `nvlinks`, how many a GPU has, and `nvlink_version`.

    Raises:
        GpuLost: See `Gpu.sample`.
    """
    links = nvlinks(gpu)
    return {"nvlinks": links.count, "nvlink_version": links.version}


def topology(gpus: Sequence[Gpu]) -> list[list[str]]:
    """Returns the matrix of `nvidia-smi topo -m`, without network cards.

    Args:
        gpus: Sequence of `Gpu`.

    Returns:
        A list of strings per GPU, one per GPU: `"X"` for itself,
        `"NV4"` for four NVLinks (through NVSwitches: the fewer of the two
        GPUs'), else the part of PCIe that the data pass, a key of `WORDS`;
        `"?"` if unknown.

    Raises:
        GpuLost: See `Gpu.sample`.

    Example:

    ```python
    nvml, _ = open_nvml()
    for gpu, row in zip(nvml.gpus, topology(nvml.gpus)):
        print(gpu.index, *row)  # 0 X NV4, then 1 NV4 X
    ```
    """
    links = [nvlinks(gpu) for gpu in gpus]
    addresses = [_address_of(gpu) for gpu in gpus]

    def between(first: int, second: int) -> str:
        if first == second:
            return "X"
        count = links[first].peers.get(addresses[second], 0) + min(
            links[first].to_switches, links[second].to_switches
        )
        if count:
            return f"NV{count}"
        return _pcie(gpus[first], gpus[second])

    numbers = range(len(links))
    return [[between(row, column) for column in numbers] for row in numbers]


def ring_rate(
    cards: Sequence[dict[str, Any]], topology: list[list[str]]
) -> float | None:
    """Returns what a ring over GPUs can carry, in bytes per second.

    NVLinks where they connect all GPUs, else PCIe; `None` where it isn't known.

    Args:
        cards: Sequence of dictionaries, of each GPU those of `Gpu.describe` and
            `counted`.
        topology: See `topology`; of the same GPUs.
    """
    if not cards or len(topology) != len(cards):
        return None
    if are_connected(topology):
        return 1e9 * min(
            nvlink_rate(card["nvlink_version"], card["nvlinks"])
            for card in cards
        )
    slowest = min(
        pcie_rate(card.get("pcie_generation_max", 0), card.get("pcie_width", 0))
        for card in cards
    )
    return 1e9 * slowest or None


def are_connected(topology: list[list[str]]) -> bool:
    """Whether NVLinks lead from each GPU to each other one, over others or not.

    Args:
        topology: See `topology`.
    """
    reached, last = set(), {0}
    while last:
        reached |= last
        last = {
            place
            for row in last
            for place, kind in enumerate(topology[row])
            if kind.startswith("NV") and place not in reached
        }
    return len(reached) == len(topology) > 1


def _pcie(first: Gpu, second: Gpu) -> str:
    api = first.api
    level = first.ask(api.nvmlDeviceGetTopologyCommonAncestor, second.handle)
    return {
        api.NVML_TOPOLOGY_INTERNAL: "PIX",  # Two GPUs on one board.
        api.NVML_TOPOLOGY_SINGLE: "PIX",
        api.NVML_TOPOLOGY_MULTIPLE: "PXB",
        api.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        api.NVML_TOPOLOGY_NODE: "NODE",
        api.NVML_TOPOLOGY_SYSTEM: "SYS",
    }.get(level, "?")


def _address_of(gpu: Gpu) -> Any:
    pci = gpu.ask(gpu.api.nvmlDeviceGetPciInfo)
    return pci and _address(pci)


def _address(pci: Any) -> tuple[int, int, int]:
    return pci.domain, pci.bus, pci.device
