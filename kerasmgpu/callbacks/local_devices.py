"""The names of this worker's devices."""

import tensorflow as tf


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
    """Returns a GPU's name by its driver, `"NVIDIA H100 80GB HBM3"`.

    Args:
        device: String, its short name in TensorFlow, `"GPU:0"`.

    Returns:
        String, `"unknown"` without a driver's name; `None` for a CPU.
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
