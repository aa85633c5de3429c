"""Bandwidths of collectives, and whether they are what the links can give."""

from collections.abc import Iterator
from typing import Any

from kerasmgpu.doctor.catalogue import found
from kerasmgpu.doctor.findings import Finding, fine
from kerasmgpu.hardware import gpu_links

_SLOW = 0.4
"""Share of the links' rate below which an all-reduce is called slow; nccl-tests
reaches 0.7 to 0.9 on large values."""


def bandwidths(
    collective: str, size: int, seconds: float, replicas: int
) -> tuple[float, float]:
    """Returns algorithm and bus bandwidth in bytes per second.

    They are those of nccl-tests (doc/PERFORMANCE.md): the size by the time, and
    that times the share of the size that each link has to carry, which is
    comparable with the rate of the links.

    Args:
        collective: `"all_reduce"`, `"all_gather"` or `"reduce_scatter"`.
        size: Integer, bytes of the whole value.
        seconds: Float.
        replicas: Integer.

    Example:

    >>> bandwidths("all_reduce", 1_000_000, 0.001, 4)
    (1000000000.0, 1500000000.0)
    """
    algorithm = size / seconds
    rounds = 2 if collective == "all_reduce" else 1
    return algorithm, algorithm * rounds * (replicas - 1) / replicas


def judge_collectives(
    measured: dict[str, Any], gpus: list[dict[str, Any]], is_job: bool
) -> Iterator[Finding]:
    """Judges what the process of `collective_times` returned.

    Args:
        measured: Its dictionary, or `{"error": why it failed}`.
        gpus: List of this machine's GPUs, as of `gpu_facts`; empty without.
        is_job: Boolean, whether there are several workers.
    """
    if "error" in measured:
        yield found("collectives_failed", "collectives", measured["error"])
        return
    if not measured["times"]:
        text = "one device: no collectives"
        yield fine("collectives", "collectives", text)
        return
    wrong = {
        one["collective"] for one in measured["times"] if not one["is_right"]
    }
    if wrong:
        text = f"wrong values: {', '.join(sorted(wrong))}"
        yield found("collective_wrong", "collectives", text)
    (*_, last) = (
        one for one in measured["times"] if one["collective"] == "all_reduce"
    )
    _, bus = bandwidths(
        "all_reduce", last["bytes"], last["seconds"], measured["replicas"]
    )
    text = f"all-reduce of {last['bytes'] >> 20} MiB: {bus / 1e9:.3g} GB/s"
    rate = None if is_job else links_rate(gpus)
    if rate is None or "GPU" not in measured["devices"][0]:
        yield fine("collectives", "collectives", text)
        return
    text += f" of {rate / 1e9:.3g} GB/s that its slowest link carries"
    is_slow = bus < _SLOW * rate
    yield (
        found("collective_slow", "collectives", text)
        if is_slow
        else fine("collectives", "collectives", text)
    )


def links_rate(gpus: list[dict[str, Any]]) -> float | None:
    """Returns what a ring over GPUs can carry, in bytes per second.

    NVLinks where all have them, else PCIe; `None` where it isn't known.
    """
    if not gpus:
        return None
    if all(gpu.get("nvlinks") for gpu in gpus):
        return 1e9 * min(
            gpu_links.nvlink_rate(gpu["nvlink_version"], gpu["nvlinks"])
            for gpu in gpus
        )
    slowest = min(
        gpu_links.pcie_rate(
            gpu.get("pcie_generation_max", 0), gpu.get("pcie_width", 0)
        )
        for gpu in gpus
    )
    return 1e9 * slowest or None
