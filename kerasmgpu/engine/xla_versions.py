"""What compiled programs depend on: versions, flags and models of devices."""

import hashlib
import os
from collections.abc import Mapping

import tensorflow as tf

from kerasmgpu.engine.private_names import configuration

_VARIABLES = (
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_DETERMINISTIC_OPS",
    "TF_CUDNN_DETERMINISTIC",
    "NVIDIA_TF32_OVERRIDE",
)
"""Environment variables on which compiled programs depend."""

_FEATURES = "CPU features"


def versions(on_gpus: bool) -> dict[str, str]:
    """Returns what programs depend on that this process compiles.

    Returns:
        Dictionary from names, such as `"TensorFlow"` or `"CPU"`, to values.
    """
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    processor, features = _processor()
    found = {
        "TensorFlow": tf.version.VERSION,
        "TensorFlow's commit": tf.version.GIT_VERSION,
        "TensorFlow's compiler": tf.version.COMPILER_VERSION,
        "CPU": processor,
        _FEATURES: features,
        # XLA divides work on a CPU by them.
        "CPU cores": str(len(os.sched_getaffinity(0))),
        **{name: os.environ.get(name, "") for name in _VARIABLES},
        "TensorFloat-32": str(tf32),
        "op determinism": str(configuration.is_op_determinism_enabled()),
    }
    if on_gpus:
        build = tf.sysconfig.get_build_info()
        gpus = tf.config.get_visible_devices("GPU")
        found["GPU"] = ", ".join(sorted(set(map(_gpu, gpus))))
        found["CUDA"] = str(build.get("cuda_version"))
        found["cuDNN"] = str(build.get("cudnn_version"))
    return found


def digest(found: Mapping[str, str]) -> str:
    """Returns a name for what programs depend on, 16 hexadecimal digits."""
    text = repr(sorted(found.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Says what differs, a line for each value.

    Args:
        there: Dictionary, what kept programs depend on; see `versions`.
        here: The same of this process.

    Example:

    >>> differences({"CPU cores": "4"}, {"CPU cores": "64"})
    ['CPU cores: 4 there, 64 here']
    """
    lines = []
    for name in {**here, **there}:
        one, other = there.get(name, ""), here.get(name, "")
        if one == other:
            continue
        if name == _FEATURES:
            one = " ".join(sorted(set(one.split()) - set(other.split())))
            other = " ".join(
                sorted(set(other.split()) - set(there[name].split()))
            )
            lines.append(
                f"{name}: {one or 'none'} only there, "
                f"{other or 'none'} only here"
            )
        else:
            lines.append(
                f"{name}: {one or 'none'} there, {other or 'none'} here"
            )
    return lines


def _gpu(gpu: tf.config.PhysicalDevice) -> str:
    """The model and the compute capability of a GPU."""
    details = tf.config.experimental.get_device_details(gpu)
    capability = details.get("compute_capability", ())
    name = str(details.get("device_name", "unknown"))
    return f"{name} ({'.'.join(map(str, capability))})"


def _processor() -> tuple[str, str]:
    """The model and the features of the processor, as Linux tells them."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        first = file.read().split("\n\n", 1)[0]
    told = {}
    for line in first.splitlines():
        name, _, value = line.partition(":")
        told[name.strip()] = value.strip()
    features = told.get("flags") or told.get("Features", "")
    parts = [f"{n[4:]} {told[n]}" for n in told if n.startswith("CPU ")]
    return told.get("model name") or ", ".join(parts), features
