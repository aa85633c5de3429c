"""Model FLOPs per second, and their share of the devices' peak."""

from collections.abc import Mapping

import tensorflow as tf
from absl import logging

from kerasmgpu.flops.trained_step import TrainedStep
from kerasmgpu.hardware import data_sheets


def utilization(
    strategy: tf.distribute.Strategy, rates: Mapping[str, float], device: str
) -> dict[str, float]:
    """Returns the FLOPs figures of an epoch.

    Args:
        strategy: The strategy that trained.
        rates: Mapping with `examples_per_second` and `steps_per_second`.
        device: String, short name of this worker's first device, `"GPU:0"`; all
            replicas are taken to have one like it.

    Returns:
        Dictionary: `flops_per_second` over all replicas, if they can be
        counted; `mfu`, 0 to 1, model FLOPs utilisation: their share of the peak
        of all replicas' devices for the data types of the products, if it is
        known.
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
    sheet = _device(device)
    seconds = None
    if sheet is not None:
        seconds = flops.seconds_at_peak(
            sheet,
            rows,
            tf.config.experimental.tensor_float_32_execution_enabled(),
        )
    if seconds is not None:
        replicas = strategy.num_replicas_in_sync
        figures["mfu"] = seconds * steps_per_second / replicas
    return figures


def gpu_name(name: str) -> str | None:
    """Returns the name that the driver reports for a GPU, or `None`.

    Args:
        name: String, a device's short name, `"GPU:0"`.

    Returns:
        String, such as `"NVIDIA H100 80GB HBM3"`; `None` for other devices.
    """
    kind, index = name.split(":")
    gpus = tf.config.get_visible_devices("GPU")
    if kind != "GPU" or int(index) >= len(gpus):
        return None
    details = tf.config.experimental.get_device_details(gpus[int(index)])
    return str(details.get("device_name", "unknown"))


def _device(name: str) -> data_sheets.Device | None:
    """The data sheet of a device; `None` if unknown."""
    reported = gpu_name(name)
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
