"""The state of a worker's devices, in lines of text."""

from collections.abc import Iterator

import tensorflow as tf


def lines() -> list[str]:
    """Returns a line per GPU, and one of the process. Waits for no device."""
    return [*_gpus(), f"this process: {_resident()}"]


def _gpus() -> Iterator[str]:
    for device in tf.config.list_logical_devices("GPU"):
        name = device.name.rpartition("device:")[2]
        try:
            memory = tf.config.experimental.get_memory_info(name)
        except (ValueError, tf.errors.OpError) as error:
            yield f"{name}: {error}"
            continue
        yield (
            f"{name}: {memory['current'] / 2**20:,.0f} MiB of tensors, "
            f"{memory['peak'] / 2**20:,.0f} MiB at most"
        )


def _resident() -> str:
    try:
        with open("/proc/self/status", encoding="utf-8") as file:
            for line in file:
                if line.startswith("VmRSS"):
                    return f"{int(line.split()[1]) / 1024:,.0f} MiB resident"
    except OSError:
        pass
    return "memory unknown"
