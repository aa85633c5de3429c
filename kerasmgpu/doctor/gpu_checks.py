"""GPUs and their links, as the driver and TensorFlow tell: facts, and findings.

Minimum drivers are those of "CUDA Toolkit Release Notes", table "CUDA Toolkit
and Minimum Required Driver Version for CUDA Minor Version Compatibility".
"""

from collections.abc import Iterator
from typing import Any

from kerasmgpu.doctor.card_checks import (
    judge_card,
    judge_cards,
    judge_links,
    together,
)
from kerasmgpu.doctor.findings import Finding, fine, found
from kerasmgpu.hardware import cuda_devices, gpu_links, nvml
from kerasmgpu.hardware.gpu import Gpu, GpuLost

_LEAST_DRIVER = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
"""Oldest driver on Linux for a major version of CUDA."""

_BLACKWELL = (10, 0)
_CUDA_OF_BLACKWELL = (12, 8)  # Its release notes: compute capability 10 and 12.
_LIBRARIES = ("libcudart", "libcudnn", "libcublas")


def judge_gpus(
    driver: dict[str, Any],
    tensorflow: dict[str, Any],
    environment: dict[str, str],
    log: list[str],
    is_job: bool = False,
) -> Iterator[Finding]:
    """Judges what the driver and TensorFlow see.

    Args:
        driver: As `gpu_facts` returns them.
        tensorflow: As the process of `tensorflow_checks` returns them; or
            `{"error": why it failed}`.
        log: List of TensorFlow's log lines on GPU libraries.
        is_job: Boolean, whether this is one worker of several, each of which
            is to see its own GPUs.
    """
    seen = tensorflow.get("gpus", [])
    if "missing" in driver:
        text = f"TensorFlow sees {len(seen)}, the driver did not answer"
        yield found("no_nvml", "GPUs", text, reason=driver["missing"])
    else:
        yield _driver(driver, tensorflow.get("build", {}).get("cuda_version"))
        if "error" not in tensorflow:
            yield _visible(driver, tensorflow, environment, log, is_job)
        cards = [(str(one["index"]), judge_card(one)) for one in driver["gpus"]]
        yield from together("GPU", " ", cards)
        for line in driver["lost"]:
            yield found("gpu_lost", "GPUs", line)
        yield from judge_cards(driver["gpus"])
        yield from judge_links(driver["topology"], driver["gpus"])
    if seen:
        text = f"TensorFlow has loaded {', '.join(tensorflow['libraries'])}"
        yield fine("libraries", "GPUs", text)
    build = tensorflow.get("build", {})
    kernels = [(str(n), _capability(one, build)) for n, one in enumerate(seen)]
    yield from together("GPU", ":", kernels)


def _driver(driver: dict[str, Any], built: str | None) -> Finding:
    text = f"driver {driver['driver'] or 'of an unknown version'}"
    if driver["cuda"]:
        text += f", for CUDA up to {driver['cuda']}"
    if not built:
        return fine("driver", "GPUs", text)
    text += f"; TensorFlow was built with CUDA {built}"
    cuda = _numbers(built)
    least = _LEAST_DRIVER.get(cuda[0])
    own = _numbers(driver["driver"] or "")
    if least is not None and own and own < least:
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
    is_job: bool,
) -> Finding:
    """Compares GPUs, and says why TensorFlow misses some."""
    there, seen = driver["count"], len(tensorflow["gpus"])
    text = f"the driver sees {there} GPUs, TensorFlow {seen}"
    if driver["denied"]:
        text += f"; this user may not use {len(driver['denied'])} more"
    chosen = environment.get(cuda_devices.VARIABLE)
    build = tensorflow["build"]
    if seen == there:
        return fine("gpus_visible", "GPUs", text)
    if seen == there - len(driver["lost"]):
        return fine("gpus_visible", "GPUs", f"{text}, all that answer")
    if seen == 1 and any(gpu.get("mig_mode") for gpu in driver["gpus"]):
        text += ": one part of one of them, since MIG is on"
        return fine("gpus_visible", "GPUs", text)
    if chosen is not None:
        text += f": {cuda_devices.VARIABLE}={chosen}"
        if seen == len(cuda_devices.named(chosen)):
            if is_job:
                return fine("gpus_visible", "GPUs", text)
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


def _capability(
    gpu: dict[str, Any], build: dict[str, Any]
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
        yield fine("capability", "GPU", text)
    elif not any(kind == "compute" and one <= own for kind, one in built):
        yield found("capability_not_built", "GPU", text)
    elif own >= _BLACKWELL and _numbers(cuda) < _CUDA_OF_BLACKWELL:
        yield found("blackwell", "GPU", text)
    else:
        yield found("capability_from_ptx", "GPU", text)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _dotted(version: Any) -> str:
    return ".".join(map(str, version)) if version else "unknown"


def gpu_facts() -> dict[str, Any]:
    """Returns facts of all GPUs of the machine.

    Returns:
        Dictionary of `"driver"` and `"cuda"` (strings, the driver's version
        and the newest CUDA that it runs; or `None`), `"count"` (integer, the
        GPUs that this user may use), `"gpus"` (list of dictionaries, as of
        `Gpu.describe` and `Gpu.sample`, with `"nvlinks"`, `"nvlink_version"`
        and `"denied"`, NVML's functions that this user may not call), `"lost"`
        (list of lines), `"denied"` (indices of GPUs that this user may not
        use) and `"topology"` of `"gpus"` (see `gpu_links.topology`); or of
        `"missing"`, why nothing is known.
    """
    api, reason = nvml.open_nvml()
    if api is None:
        return {"missing": reason}
    try:
        lost, there = list(api.lost), len(api.gpus) + len(api.lost)
        facts, answering = [], []
        for gpu in api.gpus:
            try:
                facts.append(_of_gpu(gpu))
                answering.append(gpu)
            except GpuLost as error:
                lost.append(str(error))
        try:
            topology = gpu_links.topology(answering)
        except GpuLost as error:  # Since then.
            lost.append(str(error))
            topology = []
        return {
            "driver": api.driver_version,
            "cuda": api.cuda_version,
            "count": there,
            "gpus": facts,
            "lost": lost,
            "denied": api.denied,
            "topology": topology,
        }
    finally:
        api.close()


def _of_gpu(gpu: Gpu) -> dict[str, Any]:
    facts = {
        **gpu.describe(),
        **gpu.sample(),
        **gpu_links.counted(gpu),
        "denied": sorted(gpu.denied),
    }
    # Names of a GPU and its place, which no text to paste needs.
    return {k: v for k, v in facts.items() if k not in ("uuid", "pci_bus_id")}
