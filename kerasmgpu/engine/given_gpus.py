"""Checks that a worker sees the GPUs that the launcher gave it."""

import os

import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.hardware import cuda_devices

_OF_LAUNCHER = "KERASMGPU_RESTART"
"""Variable that `kerasmgpu launch` sets for its workers."""


def require() -> None:
    """Raises if the launcher gave this worker more GPUs than TensorFlow sees.

    Else it would train on the CPU beside workers on GPUs, as after the loss of
    a GPU and a restart of the job.

    Raises:
        InputError: If there are fewer.
    """
    chosen = os.environ.get(cuda_devices.VARIABLE, "")
    seen = len(tf.config.list_physical_devices("GPU"))
    if _OF_LAUNCHER in os.environ and seen < len(cuda_devices.named(chosen)):
        raise InputError(
            f"The launcher gave this worker {cuda_devices.VARIABLE}={chosen}, "
            f"of which TensorFlow sees {seen}. `kerasmgpu doctor` says why; "
            f"{cuda_devices.VARIABLE}=-1 kerasmgpu launch … trains on CPUs"
        )
