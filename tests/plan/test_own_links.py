"""What `kerasmgpu plan` notes of the links of this machine's GPUs."""

import pytest

from tests.hardware import false_driver
from tests.hardware.eight_gpus import MACHINES, sound_box
from tests.hardware.false_machine import Machine
from tests.hardware.recorded_nvml import geforce


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sound_box", "NVLink with 450 GB/s: --link=nvlink4"),
        ("bridged_pairs", "PCIe with 63 GB/s: --link=pcie5"),
        ("mixed", "PCIe with 63 GB/s: --link=pcie5"),
        ("slow_pcie", "NVLink with 400 GB/s: --link=360"),
        ("fallen_off", "The 7 GPUs of this machine have NVLink"),
    ],
)
def test_plan_names_this_machines_links(monkeypatch, name, words):
    said = false_driver.plan(monkeypatch, MACHINES[name]())
    assert "note: --link is not given, and pcie4 is assumed. The " in said
    assert words in said


@pytest.mark.parametrize("name", ["old_driver", "nvml_unknown"])
def test_plan_without_known_links(monkeypatch, name):
    assert "note" not in false_driver.plan(monkeypatch, MACHINES[name]())


def test_plan_for_a_named_link(monkeypatch):
    said = false_driver.plan(monkeypatch, sound_box(), "--link=nvlink3")
    assert "note" not in said


def test_plan_for_links_as_assumed(monkeypatch):
    pcie4 = {"nvmlDeviceGetMaxPcieLinkGeneration": 4}
    machine = Machine([geforce(n, **pcie4) for n in (1, 2)])
    assert "note" not in false_driver.plan(monkeypatch, machine)
