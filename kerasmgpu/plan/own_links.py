"""What the links of this machine's GPUs are, for who has named none."""

from kerasmgpu.doctor.collective_checks import are_connected, links_rate
from kerasmgpu.doctor.gpu_checks import gpu_facts
from kerasmgpu.plan.link_rates import LINKS, PAYLOAD_SHARE


def note(assumed: str) -> str:
    """Returns a note if this machine's GPUs have other links; else empty.

    Args:
        assumed: String, the link that the plan assumes, a key of `LINKS`.
    """
    driver = gpu_facts()
    gpus = driver.get("gpus", [])
    rate = links_rate(driver) if len(gpus) > 1 else None
    if rate is None:
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
    kind = "NVLink" if are_connected(driver["topology"]) else "PCIe"
    return (
        f"--link is not given, and {assumed} is assumed. The {len(gpus)} GPUs of "
        f"this machine have {kind} with {rate / 1e9:.3g} GB/s: --link={name}"
    )
