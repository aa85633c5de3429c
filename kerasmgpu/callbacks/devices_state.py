"""The state of a worker's devices, in lines of text."""

from collections.abc import Iterator

import tensorflow as tf

from kerasmgpu.callbacks.device_sampler import Host
from kerasmgpu.hardware.gpu import GpuLost
from kerasmgpu.hardware.nvml import open_nvml

_SHOWN = ("name", "utilization", "memory_bytes", "temperature_celsius")


def lines() -> list[str]:
    """Returns lines about each GPU, and one about this process."""
    sample = Host().sample()
    used = sample.get("memory_bytes", sample["memory_peak_bytes"])
    total = sample["memory_total_bytes"]
    process = f"this process: {used / 2**30:.2f} of {total / 2**30:.1f} GiB"
    return [*_tensors(), *_gpus(), process]


def _tensors() -> Iterator[str]:
    for device in tf.config.list_logical_devices("GPU"):
        name = device.name.rpartition("device:")[2]
        memory = tf.config.experimental.get_memory_info(name)
        yield (
            f"{name}: {memory['current'] / 2**20:,.0f} MiB of tensors, "
            f"{memory['peak'] / 2**20:,.0f} MiB at most"
        )


def _gpus() -> Iterator[str]:
    nvml, _ = open_nvml()
    if nvml is None:
        return
    yield from nvml.lost
    for gpu in nvml.gpus:
        try:
            sample = gpu.sample()
        except GpuLost as error:
            yield str(error)
            continue
        yield f"nvidia-smi {gpu.index}: " + ", ".join(
            f"{key} {sample[key]}" for key in _SHOWN if key in sample
        )
    nvml.close()
