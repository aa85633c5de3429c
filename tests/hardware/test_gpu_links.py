"""The links between GPUs, of machines whose `nvidia-smi topo -m` is known."""

import pytest

from kerasmgpu.hardware import gpu_links
from kerasmgpu.hardware.nvml import open_nvml
from tests.hardware.recorded_nvml import (
    Library,
    geforce,
    h100,
    install,
    nvlinks,
    pci,
)

GPU, SWITCH = 0, 2


@pytest.fixture
def opened(monkeypatch):
    """Function that returns the `Nvml` of GPUs with recorded answers."""

    def start(*gpus):
        install(monkeypatch, Library(list(gpus)))
        return open_nvml()[0]

    return start


def test_links_through_switches(opened):
    nvml = opened(h100(1), h100(2))
    assert gpu_links.topology(nvml.gpus) == [["X", "NV18"], ["NV18", "X"]]
    links = gpu_links.nvlinks(nvml.gpus[0])
    assert (links.version, links.count, links.to_switches) == ("4.0", 18, 18)


def test_links_from_gpu_to_gpu(opened):
    """As in a DGX-1: one link to some, two to others, none to the rest."""
    addresses = [pci(bus) for bus in (6, 7, 10)]
    nvml = opened(
        h100(6, **nvlinks([(GPU, addresses[1])] * 2 + [None], version=2)),
        h100(7, **nvlinks([(GPU, addresses[0])] * 2 + [(GPU, addresses[2])])),
        h100(10, **nvlinks([None, None, (GPU, addresses[1])])),
    )
    assert gpu_links.topology(nvml.gpus) == [
        ["X", "NV2", "SYS"],
        ["NV2", "X", "NV1"],
        ["SYS", "NV1", "X"],
    ]
    links = gpu_links.nvlinks(nvml.gpus[0])
    assert (links.version, links.count) == ("2.0", 2)
    assert gpu_links.nvlinks(nvml.gpus[1]).count == 3


@pytest.mark.parametrize(
    "level, word",
    [
        (0, "PIX"),
        (10, "PIX"),
        (20, "PXB"),
        (30, "PHB"),
        (40, "NODE"),
        (50, "SYS"),
        (60, "?"),
    ],
)
def test_pcie(opened, level, word):
    answer = {"nvmlDeviceGetTopologyCommonAncestor": level}
    nvml = opened(geforce(1, **answer), geforce(2, **answer))
    assert gpu_links.topology(nvml.gpus) == [["X", word], [word, "X"]]
    assert gpu_links.nvlinks(nvml.gpus[0]).count == 0
    assert word == "?" or word in gpu_links.WORDS


def test_versions_are_those_of_nvml():
    import pynvml

    for number, version in list(enumerate(gpu_links._VERSIONS))[1:]:
        name = f"NVML_NVLINK_VERSION_{version.replace('.', '_')}"
        # nvidia-ml-py 12 lacks these names.
        assert getattr(pynvml, name, number) == number


H100 = {"nvlinks": 18, "nvlink_version": "4.0"}
PCIE = {"nvlinks": 0, "pcie_width": 16, "pcie_generation_max": 4}
PAIR = {**PCIE, "nvlinks": 12, "nvlink_version": "3.0"}


def joined(*pairs, of):
    """The topology of GPUs of which these pairs have NVLinks."""
    return [
        [
            "X" if i == j else "NV1" if {i, j} in map(set, pairs) else "SYS"
            for j in range(of)
        ]
        for i in range(of)
    ]


@pytest.mark.parametrize(
    ("cards", "pairs", "rate"),
    [
        ([H100] * 2, [(0, 1)], 450e9),
        ([PCIE, PCIE | {"pcie_width": 4}], [], 4 * 1.969e9),
        ([PAIR] * 4, [(0, 1), (2, 3)], 16 * 1.969e9),  # Two pairs of bridges.
        ([PAIR] * 4, [(0, 1), (2, 3), (1, 2)], 300e9),
        ([H100, {"nvlinks": 0}], [], None),
        ([], [], None),
    ],
)
def test_rates_of_rings(cards, pairs, rate):
    topology = joined(*pairs, of=len(cards))
    found = gpu_links.ring_rate(cards, topology)
    assert found == (rate and pytest.approx(rate, rel=1e-3))
    assert gpu_links.ring_rate(cards, []) is None
