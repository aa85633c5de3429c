"""A note on the links of this machine's GPUs, for a plan that names none."""

from kerasmgpu.hardware import gpu_links
from kerasmgpu.hardware.gpu import GpuLost
from kerasmgpu.hardware.nvml import Nvml, open_nvml
from kerasmgpu.plan.link_rates import LINKS, PAYLOAD_SHARE


def note(assumed: str) -> str:
    """Returns a note if this machine's GPUs have other links; else empty.

    Args:
        assumed: String, the link that the plan assumes, a key of `LINKS`.
    """
    nvml, _ = open_nvml()
    if nvml is None:
        return ""
    try:
        return _note(assumed, nvml)
    except GpuLost:  # `kerasmgpu doctor` tells of it; a plan needs no GPU.
        return ""
    finally:
        nvml.close()


def _note(assumed: str, nvml: Nvml) -> str:
    cards = [{**g.describe(), **gpu_links.counted(g)} for g in nvml.gpus]
    topology = gpu_links.topology(nvml.gpus)
    rate = gpu_links.ring_rate(cards, topology)
    if rate is None or len(cards) < 2:
        return ""
    data = rate * PAYLOAD_SHARE
    alike = [
        name
        for name, link in LINKS.items()
        if abs(link.bytes_per_second - data) < 0.01 * data
        and not name.endswith("gbit")
    ]
    if assumed in alike:
        return ""
    name = alike[-1] if alike else f"{data / 1e9:.3g}"
    kind = "NVLink" if gpu_links.are_connected(topology) else "PCIe"
    return (
        f"--link is not given, and {assumed} is assumed. The {len(cards)} GPUs "
        f"of this machine have {kind} with {rate / 1e9:.3g} GB/s: --link={name}"
    )
