"""Describes the devices of this worker: names, state, FLOPs and MFU."""

from collections.abc import Iterator, Mapping

import tensorflow as tf
from absl import logging

from kerasmgpu.callbacks.device_sampler import Host
from kerasmgpu.flops.trained_step import TrainedStep
from kerasmgpu.hardware import data_sheets
from kerasmgpu.hardware.gpu import GpuLost
from kerasmgpu.hardware.nvml import open_nvml


def local_devices(strategy: tf.distribute.Strategy) -> list[str]:
    """Returns the short names of this worker's devices: `["GPU:0"]`."""
    try:
        paths = strategy.extended.worker_devices
    except RuntimeError:
        # TensorFlow's default strategy: the first GPU, or else the CPU.
        devices = tf.config.list_logical_devices
        paths = [(devices("GPU") or devices("CPU"))[0].name]
    return [path.rsplit("device:", 1)[-1] for path in paths]


def reported_name(device: str) -> str | None:
    """Returns the driver's name for a GPU: `"NVIDIA H100 80GB HBM3"`.

    Args:
        device: String, the device's short name in TensorFlow, `"GPU:0"`.

    Returns:
        String, `"unknown"` if the driver gives no name; `None` for a CPU, and
        for a GPU beyond the visible ones.
    """
    kind, index = device.split(":")
    gpus = tf.config.get_visible_devices("GPU")
    if kind != "GPU" or int(index) >= len(gpus):
        return None
    details = tf.config.experimental.get_device_details(gpus[int(index)])
    return details.get("device_name", "unknown")


def device_names(strategy: tf.distribute.Strategy) -> list[str]:
    """Returns this worker's devices: `["GPU:0 (NVIDIA H100 80GB HBM3)"]`."""
    names = []
    for name in local_devices(strategy):
        reported = reported_name(name)
        names.append(name if reported is None else f"{name} ({reported})")
    return names


def utilization(
    strategy: tf.distribute.Strategy, rates: Mapping[str, float]
) -> dict[str, float]:
    """Returns FLOPs per second and MFU of an epoch, where they are known.

    Args:
        rates: Mapping with `examples_per_second` and `steps_per_second`.

    Returns:
        Dictionary: `flops_per_second` over all replicas, if the step's FLOPs
        can be counted; `mfu` (model FLOPs utilisation, 0 to 1), the share of
        these FLOPs in the peak of all replicas' devices for the data types of
        the products, if that peak is known. All replicas are assumed to have
        the kind of device that this worker's first replica has.
    """
    step: TrainedStep | None = getattr(strategy, "trained_step", None)
    flops = None if step is None else step.flops
    if flops is None:
        return {}
    steps_per_second = rates["steps_per_second"]
    # With batches of different sizes, products grow with the mean.
    rows = rates["examples_per_second"] / steps_per_second
    total = flops.total(rows)
    if total is None:
        return {}
    figures = {"flops_per_second": total * steps_per_second}
    device = _device(strategy)
    seconds = None
    if device is not None:
        seconds = flops.seconds_at_peak(
            device,
            rows,
            tf.config.experimental.tensor_float_32_execution_enabled(),
        )
    if seconds is not None:
        replicas = strategy.num_replicas_in_sync
        figures["mfu"] = seconds * steps_per_second / replicas
    return figures


def _device(strategy: tf.distribute.Strategy) -> data_sheets.Device | None:
    """Returns the data sheet of the first replica's device.

    `None` if there is none for it, which is logged once.
    """
    name = local_devices(strategy)[0]
    reported = reported_name(name)
    device = data_sheets.reported(reported or "")
    if device is None:
        # Nobody expects an MFU of a CPU.
        logging.log_first_n(
            logging.INFO if reported is None else logging.WARNING,
            "kerasmgpu: no MFU: the peak of %s is not known; "
            "kerasmgpu.hardware.data_sheets has those that are.",
            1,
            reported or name,
        )
    return device


_SHOWN = ("name", "utilization", "memory_bytes", "temperature_celsius")


def state() -> list[str]:
    """Returns lines on memory and use: of GPUs, and of this process.

    TensorFlow's tensors on each of its GPUs; what NVML, if there is one, counts
    on each GPU of the machine; this process's memory on the host.
    """
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
