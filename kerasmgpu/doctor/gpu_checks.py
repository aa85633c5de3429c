"""GPUs and their links, as the driver and TensorFlow tell: facts, and findings.

Minimum drivers are those of "CUDA Toolkit Release Notes", table "CUDA Toolkit
and Minimum Required Driver Version for CUDA Minor Version Compatibility".
"""

import itertools
from collections.abc import Iterator
from typing import Any

from kerasmgpu.doctor.findings import Finding, fine, found
from kerasmgpu.hardware import gpu_links, nvml
from kerasmgpu.hardware.gpu import NOT_SLOWED, Gpu, GpuLost

_LEAST_DRIVER = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
"""Oldest driver on Linux for a major version of CUDA."""

_BLACKWELL = (10, 0)
_CUDA_OF_BLACKWELL = (12, 8)  # Its release notes: compute capability 10 and 12.
_USED_BY_OTHERS = 0.02  # A share of the memory; a display takes less.
_LIBRARIES = ("libcudart", "libcudnn", "libcublas")


def judge_gpus(
    driver: dict[str, Any],
    tensorflow: dict[str, Any],
    environment: dict[str, str],
    log: list[str],
) -> Iterator[Finding]:
    """Judges what the driver and TensorFlow see.

    Args:
        driver: As `gpu_facts` returns them.
        tensorflow: As the process of `tensorflow_checks` returns them; or
            `{"error": why it failed}`.
        log: List of TensorFlow's log lines on GPU libraries.
    """
    seen = tensorflow.get("gpus", [])
    if "missing" in driver:
        text = f"TensorFlow sees {len(seen)}, the driver did not answer"
        yield found("no_nvml", "GPUs", text, reason=driver["missing"])
    else:
        yield _driver(driver, tensorflow.get("build", {}).get("cuda_version"))
        if "error" not in tensorflow:
            yield _visible(driver, tensorflow, environment, log)
        for gpu in driver["gpus"]:
            yield from _one_gpu(gpu)
        for line in driver["lost"]:
            yield found("gpu_lost", "GPUs", line)
        yield from _links(driver["topology"])
    if seen:
        text = f"TensorFlow has loaded {', '.join(tensorflow['libraries'])}"
        yield fine("libraries", "GPUs", text)
    for number, gpu in enumerate(seen):
        yield from _capability(f"GPU:{number}", gpu, tensorflow["build"])


def _driver(driver: dict[str, Any], built: str | None) -> Finding:
    text = f"driver {driver['driver']}, for CUDA up to {driver['cuda']}"
    if not built:
        return fine("driver", "GPUs", text)
    text += f"; TensorFlow was built with CUDA {built}"
    cuda = _numbers(built)
    least = _LEAST_DRIVER.get(cuda[0])
    if least is not None and _numbers(driver["driver"]) < least:
        values = {"cuda": cuda[0], "least": _dotted(least)}
        return found("driver_too_old", "GPUs", text, **values)
    if driver["cuda"] and _numbers(driver["cuda"]) < cuda[:2]:
        return found("driver_older_than_cuda", "GPUs", text)
    return fine("driver", "GPUs", text)


def _visible(
    driver: dict[str, Any],
    tensorflow: dict[str, Any],
    environment: dict[str, str],
    log: list[str],
) -> Finding:
    """Compares GPUs, and says why TensorFlow misses some."""
    there, seen = len(driver["gpus"]), len(tensorflow["gpus"])
    there += len(driver["lost"])
    text = f"the driver sees {there} GPUs, TensorFlow {seen}"
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    build = tensorflow["build"]
    if seen == there:
        return fine("gpus_visible", "GPUs", text)
    if chosen is not None:
        text += f": CUDA_VISIBLE_DEVICES={chosen}"
        return found("gpus_hidden", "GPUs", text)
    if not build.get("is_cuda_build"):
        text += ": this TensorFlow is built without CUDA"
        return found("tensorflow_without_cuda", "GPUs", text)
    loaded = " ".join(tensorflow["libraries"])
    # TensorFlow opens all of them before it lists GPUs.
    missing = [name for name in _LIBRARIES if name not in loaded]
    if missing and not seen:
        values = {
            "cuda": build["cuda_version"],
            "cudnn": build["cudnn_version"],
        }
        text += f": it does not find {', '.join(missing)}"
        return found("libraries_missing", "GPUs", text, **values)
    told = f": {log[-1].split('] ', 1)[-1]}" if log else ""
    return found("gpus_not_seen", "GPUs", text + told)


def _one_gpu(gpu: dict[str, Any]) -> Iterator[Finding]:
    subject = f"GPU {gpu['index']}"
    yield fine("gpu", subject, _description(gpu))
    used, total = gpu.get("memory_bytes", 0), gpu.get("memory_total_bytes", 1)
    others = len(gpu.get("processes", ()))
    if others or used > _USED_BY_OTHERS * total:
        text = f"{used / 2**30:.1f} GiB are in use, by {others} processes"
        yield found("gpu_in_use", subject, text)
    if gpu.get("mig_mode"):
        yield found("mig", subject, "MIG is on: the GPU is divided")
    errors = gpu.get("ecc_uncorrected_errors", 0)
    if errors or gpu.get("remapped_rows_failed"):
        text = f"{errors} uncorrected memory errors since the driver's start"
        if gpu.get("remapped_rows_failed"):
            text += "; a row could not be replaced"
        yield found("ecc_errors", subject, text)
    reasons = set(gpu.get("throttle_reasons", ())) - NOT_SLOWED
    if reasons:
        text = f"its clock is lowered: {', '.join(sorted(reasons))}"
        yield found("throttled", subject, text)
    width, most = gpu.get("pcie_width"), gpu.get("pcie_width_max")
    if width and most and width < most:
        text = f"PCIe runs with {width} of {most} lanes"
        yield found("pcie_narrow", subject, text)


def _description(gpu: dict[str, Any]) -> str:
    words = [str(gpu.get("name", "unknown"))]
    if "memory_total_bytes" in gpu:
        words.append(f"{gpu['memory_total_bytes'] / 2**30:.1f} GiB")
    if "pcie_width" in gpu:
        generation = gpu.get("pcie_generation_max", "?")
        words.append(f"PCIe {generation} x{gpu['pcie_width']}")
    if gpu.get("nvlinks"):
        words.append(f"{gpu['nvlinks']} NVLinks {gpu['nvlink_version']}")
    return ", ".join(words)


def _links(topology: list[list[str]]) -> Iterator[Finding]:
    kinds: dict[str, list[str]] = {}
    for one, two in itertools.combinations(range(len(topology)), 2):
        kinds.setdefault(topology[one][two], []).append(f"{one}–{two}")
    text = "; ".join(
        f"{kind} ({_links_word(kind)}): {', '.join(pairs)}"
        for kind, pairs in kinds.items()
    )
    if kinds and all(kind.startswith("NV") for kind in kinds):
        yield fine("links", "links", text)
    elif kinds:
        yield found("no_nvlink", "links", text)


def _links_word(kind: str) -> str:
    key = "NV" if kind.startswith("NV") else kind
    return gpu_links.WORDS.get(key, "unknown")


def _capability(
    subject: str, gpu: dict[str, Any], build: dict[str, Any]
) -> Iterator[Finding]:
    """Whether TensorFlow has kernels for a GPU.

    `sm_80` is compiled code, for capability 8.0 and later ones of generation 8;
    `compute_90` is that and PTX, which the driver compiles for any later one.
    """
    if not gpu.get("capability") or "cuda_compute_capabilities" not in build:
        return
    own = tuple(gpu["capability"])
    kinds = [one.split("_") for one in build["cuda_compute_capabilities"]]
    built = [(kind, (int(text[:-1]), int(text[-1]))) for kind, text in kinds]
    listed = ", ".join(build["cuda_compute_capabilities"])
    cuda = build["cuda_version"]
    text = (
        f"compute capability {_dotted(own)}; this TensorFlow is built for "
        f"{listed} with CUDA {cuda}"
    )
    if any(one[0] == own[0] and one <= own for _, one in built):
        yield fine("capability", subject, text)
    elif not any(kind == "compute" and one <= own for kind, one in built):
        yield found("capability_not_built", subject, text)
    elif own >= _BLACKWELL and _numbers(cuda) < _CUDA_OF_BLACKWELL:
        yield found("blackwell", subject, text)
    else:
        yield found("capability_from_ptx", subject, text)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _dotted(version: Any) -> str:
    return ".".join(map(str, version)) if version else "unknown"


def gpu_facts() -> dict[str, Any]:
    """Returns facts of all GPUs of the machine.

    Returns:
        Dictionary of `"driver"` and `"cuda"` (strings, the driver's version
        and the newest CUDA that it runs), `"gpus"` (list of dictionaries, as
        of `Gpu.describe` and `Gpu.sample`, with `"nvlinks"` and
        `"nvlink_version"`), `"lost"` (list of lines) and `"topology"` (see
        `gpu_links.topology`); or of `"missing"`, why nothing is known.
    """
    api, reason = nvml.open_nvml()
    if api is None:
        return {"missing": reason}
    try:
        lost, gpus = list(api.lost), []
        for gpu in api.gpus:
            try:
                gpus.append(_of_gpu(gpu))
            except GpuLost as error:
                lost.append(str(error))
        return {
            "driver": api.driver_version,
            "cuda": api.cuda_version,
            "gpus": gpus,
            "lost": lost,
            "topology": [] if lost else gpu_links.topology(api),
        }
    finally:
        api.close()


def _of_gpu(gpu: Gpu) -> dict[str, Any]:
    links = gpu_links.nvlinks(gpu)
    facts = {
        **gpu.describe(),
        **gpu.sample(),
        "nvlinks": links.count,
        "nvlink_version": links.version,
    }
    # Names of a GPU and its place, which no text to paste needs.
    return {k: v for k, v in facts.items() if k not in ("uuid", "pci_bus_id")}
