"""What the flags that recipes share may be, before a device is touched."""

import math
import os

from kerasmgpu.errors import InputError

_LARGEST = {
    "seed": 2**32 - 1,  # NumPy's and Keras's seeds have no more bits.
    "virtual_devices": 256,
    "num_replicas": 65536,
    "steps": 10**9,
    "epochs": 10**9,
    "steps_per_epoch": 10**9,
    "warmup_steps": 10**9,
    "warmup_epochs": 10**9,
    "num_packs": 10**6,
    "batch_size_per_replica": 10**9,
    "global_batch_size": 10**9,
}
"""Numbers above these are slips of the hand."""


def check(chosen):
    """Refuses what can't be meant, before a device is touched.

    A recipe need not have all shared flags.

    Args:
        chosen: The settings of a recipe, one attribute per flag.

    Raises:
        InputError: If one is out of range, or names a path that is not there.
    """
    for name in (
        "num_replicas",
        "virtual_devices",
        "num_packs",
        "batch_size_per_replica",
        "global_batch_size",
        "epochs",
        "steps",
        "steps_per_epoch",
    ):
        value = getattr(chosen, name, None)
        if value is not None and value < 1:
            raise InputError(f"--{name} must be at least 1. Received: {value}")
    for name, largest in _LARGEST.items():
        value = getattr(chosen, name, None)
        if value is not None and not value <= largest:
            raise InputError(
                f"--{name} must be at most {largest}. Received: {value}"
            )
    if not getattr(chosen, "seed", 0) >= 0:
        raise InputError(f"--seed must be at least 0. Received: {chosen.seed}")
    for name, value in vars(chosen).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(
                f"--{name} must be a finite number. Received: {value}"
            )
    learning_rate = getattr(chosen, "learning_rate", 1.0)
    if not learning_rate > 0:
        raise InputError(
            f"--learning_rate must be above 0. Received: {learning_rate}"
        )
    warmup_steps = getattr(chosen, "warmup_steps", 0)
    if warmup_steps < 0:
        raise InputError(
            "--warmup_steps must be 0 (no warm-up) or more. Received: "
            f"{warmup_steps}"
        )
    held_out = getattr(chosen, "held_out", 0.5)
    if not 0 < held_out < 1:
        raise InputError(
            "--held_out must be a fraction above 0 and below 1. Received: "
            f"{held_out}"
        )
    for name in ("data_path", "test_path"):
        path = getattr(chosen, name, None)
        if path is not None and not os.path.exists(path):
            raise InputError(
                f"--{name} must be a file or folder that is there. Received: "
                f"{path}"
            )
    if chosen.resume and not chosen.output_dir:
        raise InputError(
            "--resume needs the folder of the run to go on with. Received: no "
            "--output_dir"
        )
