"""Facts of the GPUs and their links, as the driver tells them."""

from typing import Any

from kerasmgpu.hardware import gpu_links, nvml
from kerasmgpu.hardware.gpu import Gpu, GpuLost


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
