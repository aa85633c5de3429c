"""Model FLOPs per second, and their share of the devices' peak."""

from collections.abc import Mapping

import tensorflow as tf
from absl import logging

from kerasmgpu.flops.trained_step import TrainedStep
from kerasmgpu.hardware import data_sheets


def utilization(
    strategy: tf.distribute.Strategy, rates: Mapping[str, float]
) -> dict[str, float]:
    """Returns the FLOPs figures of an epoch.

    Args:
        strategy: The strategy that trained.
        rates: Mapping with `examples_per_second` and `steps_per_second`.

    Returns:
        Dictionary: `flops_per_second` over all replicas, if they can be
        counted; `mfu`, 0 to 1, model FLOPs utilisation: their share of the peak
        of all replicas' devices for the data types of the products, if it is
        known. All replicas are taken to have the device of this worker's first.
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


def device_names(
    strategy: tf.distribute.Strategy,
) -> list[tuple[str, str | None]]:
    """Returns this worker's devices.

    Returns:
        List of pairs: the name in TensorFlow, `"GPU:0"`, and the name that the
        driver reports for a GPU, `"NVIDIA H100 80GB HBM3"`, or `None`.
    """
    try:
        paths = strategy.extended.worker_devices
    except RuntimeError:
        # TensorFlow's default strategy: the first GPU, or else the CPU.
        devices = tf.config.list_logical_devices
        paths = [(devices("GPU") or devices("CPU"))[0].name]
    gpus = tf.config.get_visible_devices("GPU")
    names = []
    for path in paths:
        name = path.rsplit("device:", 1)[-1]
        kind, index = name.split(":")
        reported = None
        if kind == "GPU" and int(index) < len(gpus):
            details = tf.config.experimental.get_device_details(
                gpus[int(index)]
            )
            reported = details.get("device_name", "unknown")
        names.append((name, reported))
    return names


def _device(strategy: tf.distribute.Strategy) -> data_sheets.Device | None:
    """The data sheet of the first replica's device; `None` if unknown."""
    name, reported = device_names(strategy)[0]
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
