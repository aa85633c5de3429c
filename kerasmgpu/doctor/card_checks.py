"""What the driver tells of each GPU, and of the GPUs of a machine together."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kerasmgpu.doctor.findings import Finding, fine, found
from kerasmgpu.errors import listed
from kerasmgpu.hardware import gpu_links
from kerasmgpu.hardware.gpu import NOT_SLOWED

_USED_BY_OTHERS = 0.02  # A share of the memory; a display takes less.
_MOST_PAIRS = 8  # Of GPUs, in a line: eight GPUs have 28.


def judge_card(gpu: dict[str, Any]) -> Iterator[Finding]:
    """Judges one GPU.

    Args:
        gpu: As in the list `"gpus"` of `gpu_checks.gpu_facts`.
    """
    yield fine("gpu", "GPU", _description(gpu))
    for key, text in (
        ("gpu_in_use", _in_use(gpu)),
        ("mig", "MIG is on: the GPU is divided" if gpu.get("mig_mode") else ""),
        ("ecc_errors", _memory_errors(gpu)),
        ("rows_pending", _pending(gpu)),
        ("throttled", _lowered(gpu)),
        ("pcie_narrow", _narrow(gpu)),
        ("pcie_slow", _slow(gpu)),
    ):
        if text:
            yield found(key, "GPU", text)


def together(
    kind: str, mark: str, each: Sequence[tuple[str, Iterable[Finding]]]
) -> Iterator[Finding]:
    """Yields each finding once, with all devices of which it is said.

    Args:
        kind: String, `"GPU"`.
        mark: String, between that and the number of a device.
        each: Sequence of the number of a device, and its findings.
    """
    numbers: dict[Finding, list[str]] = {}
    for number, findings in each:
        for one in findings:
            numbers.setdefault(one, []).append(number)
    for one, of in numbers.items():
        subject = f"{kind}{mark}{of[0]}"
        if len(of) > 1:
            subject = f"{kind}s {', '.join(of)}"
        yield dataclasses.replace(one, subject=subject)


def judge_cards(gpus: list[dict[str, Any]]) -> Iterator[Finding]:
    """Judges the differences between the GPUs of a machine.

    Args:
        gpus: The list `"gpus"` of `gpu_checks.gpu_facts`.
    """
    names = collections.Counter(gpu.get("name", "unknown") for gpu in gpus)
    if len(names) > 1:
        each = ", ".join(f"{count} {name}" for name, count in names.items())
        yield found("gpus_differ", "GPUs", f"the GPUs are not alike: {each}")
    most: dict[Any, int] = collections.Counter()
    for gpu in gpus:
        most[gpu.get("name")] = max(most[gpu.get("name")], gpu["nvlinks"])
    for gpu in gpus:
        # One without a bridge has no link that is down; `no_nvlink` tells it.
        if 0 < gpu["nvlinks"] < most[gpu.get("name")]:
            text = (
                f"{gpu['nvlinks']} NVLinks are active, where other GPUs of "
                f"this machine have {most[gpu.get('name')]}"
            )
            yield found("nvlink_down", f"GPU {gpu['index']}", text)
    denied = sorted({name for gpu in gpus for name in gpu["denied"]})
    if denied:
        text = f"this user has no permission for {', '.join(denied)}"
        yield found("counters_denied", "GPUs", text)


def judge_links(
    topology: list[list[str]], gpus: Sequence[dict[str, Any]]
) -> Iterator[Finding]:
    """Judges how each pair of GPUs is connected.

    Args:
        topology: As `gpu_links.topology` returns it, of `gpus`.
    """
    kinds: dict[str, list[str]] = {}
    for one, two in itertools.combinations(range(len(topology)), 2):
        pair = f"{gpus[one]['index']}–{gpus[two]['index']}"
        kinds.setdefault(topology[one][two], []).append(pair)
    text = "; ".join(
        f"{kind} ({_links_word(kind)}): {listed(pairs, _MOST_PAIRS)}"
        for kind, pairs in kinds.items()
    )
    if all(kind.startswith("NV") for kind in kinds) or {*kinds} == {"?"}:
        if kinds:
            yield fine("links", "links", text)
    elif kinds:
        yield found("no_nvlink", "links", text)


def _links_word(kind: str) -> str:
    key = "NV" if kind.startswith("NV") else kind
    return gpu_links.WORDS.get(key, "unknown")


def _description(gpu: dict[str, Any]) -> str:
    words = [str(gpu.get("name", "unknown"))]
    if "memory_total_bytes" in gpu:
        words.append(f"{gpu['memory_total_bytes'] / 2**30:.1f} GiB")
    if "pcie_width" in gpu:
        generation = gpu.get("pcie_generation_max", "?")
        words.append(f"PCIe {generation} x{gpu['pcie_width']}")
    if gpu["nvlinks"]:
        words.append(f"{gpu['nvlinks']} NVLinks {gpu['nvlink_version']}")
    return ", ".join(words)


def _in_use(gpu: dict[str, Any]) -> str:
    used = gpu.get("memory_bytes", 0) - gpu.get("memory_reserved_bytes", 0)
    count = len(gpu.get("processes", ()))
    if not count and used <= _USED_BY_OTHERS * gpu.get("memory_total_bytes", 1):
        return ""
    # Those of other containers are not listed.
    by = "processes that can't be seen from here"
    if count:
        by = "1 process" if count == 1 else f"{count} processes"
    return f"{used / 2**30:.1f} GiB are in use, by {by}"


def _memory_errors(gpu: dict[str, Any]) -> str:
    errors = gpu.get("ecc_uncorrected_errors", 0)
    if not errors and not gpu.get("remapped_rows_failed"):
        return ""
    text = f"{errors} uncorrected memory errors since the driver's start"
    if gpu.get("remapped_rows_failed"):
        text += "; a row could not be replaced"
    return text


def _pending(gpu: dict[str, Any]) -> str:
    if gpu.get("remapped_rows_pending"):
        return "faulty rows of its memory wait to be replaced"
    if gpu.get("retired_pages_pending"):
        return "faulty pages of its memory wait to be retired"
    return ""


def _lowered(gpu: dict[str, Any]) -> str:
    reasons = set(gpu.get("throttle_reasons", ())) - NOT_SLOWED
    if not reasons:
        return ""
    return f"its clock is lowered: {', '.join(sorted(reasons))}"


def _narrow(gpu: dict[str, Any]) -> str:
    width, most = gpu.get("pcie_width", 0), gpu.get("pcie_width_max", 0)
    return f"PCIe runs with {width} of {most} lanes" if width < most else ""


def _slow(gpu: dict[str, Any]) -> str:
    here = gpu.get("pcie_generation_max", 0)
    own = gpu.get("pcie_generation_of_gpu", 0)
    if not 0 < here < own:
        return ""
    return f"PCIe runs as generation {here}, the GPU has {own}"
