"""Model FLOPs per second, and their share of the devices' peak."""

from collections.abc import Mapping

import tensorflow as tf
from absl import logging

from kerasmgpu.callbacks.local_devices import local_devices, reported_name
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


def _device(strategy: tf.distribute.Strategy) -> data_sheets.Device | None:
    """The data sheet of the first replica's device; `None` if unknown."""
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
