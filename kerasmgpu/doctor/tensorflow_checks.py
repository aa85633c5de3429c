"""Versions, devices, libraries and XLA of TensorFlow: facts, and findings.

As the process `python -m … FOLDER` it gathers the facts.
"""

import importlib
import importlib.metadata
import pathlib
import platform
import re
import time
import warnings
from collections.abc import Iterator
from typing import Any

from kerasmgpu.commands import child_processes
from kerasmgpu.doctor.findings import Finding, fine, found
from kerasmgpu.errors import one_line

PACKAGES = (
    "tensorflow",
    "keras",
    "numpy",
    "ml_dtypes",
    "protobuf",
    "rich",
    "polars",
    "matplotlib",
    "nvidia-ml-py",
    "psutil",
    "tensorboard",
)
_LIBRARY = re.compile(
    r"lib(?:cuda|cudart|cudnn|nccl|cublas|cufft|cusolver)\b.*"
)


def versions() -> dict[str, str]:
    """Returns versions of Python, kerasmgpu and packages, without imports."""
    import kerasmgpu

    found = {
        (one.metadata["Name"] or "").lower(): one.version
        for one in importlib.metadata.distributions()
    }
    own = {
        "python": platform.python_version(),
        "kerasmgpu": kerasmgpu.__version__,
    }
    cuda = sorted(name for name in found if name.startswith("nvidia-"))
    listed = dict.fromkeys((*PACKAGES, *cuda))
    return own | {name: found[name] for name in listed if name in found}


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Imports TensorFlow, Keras and kerasmgpu, and returns their facts.

    Args:
        job: Dictionary of `"virtual_devices"`, an integer or `None`.
    """
    facts: dict[str, Any] = {"warning": None}
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            importlib.import_module("kerasmgpu._keras")
    except Exception as error:
        facts["import_error"] = f"{type(error).__name__}: {error}"
    for one in told:
        if "kerasmgpu was checked on" in str(one.message):
            facts["warning"] = str(one.message)
    import keras
    import tensorflow as tf

    from kerasmgpu.engine import devices

    facts["backend"] = keras.config.backend()
    build = tf.sysconfig.get_build_info()
    facts["build"] = {name: build[name] for name in sorted(build)}
    gpus = tf.config.list_physical_devices("GPU")
    details = map(tf.config.experimental.get_device_details, gpus)
    facts["gpus"] = [
        {
            "name": one.get("device_name"),
            "capability": one.get("compute_capability"),
        }
        for one in details
    ]
    facts["devices"] = devices.choose(virtual_devices=job["virtual_devices"])
    facts["xla"] = _compiled(tf)
    facts["libraries"] = _loaded()
    return facts


def _compiled(tf: Any) -> dict[str, Any]:
    """Compiles and runs a small function; its seconds, or its error."""

    @tf.function(jit_compile=True)
    def product(matrix: Any) -> Any:
        return tf.reduce_sum(tf.tanh(matrix @ matrix))

    begin = time.perf_counter()
    try:
        product(tf.ones([64, 64])).numpy()
    except Exception as error:
        return {"error": one_line(error, 300)}
    return {"seconds": time.perf_counter() - begin}


def _loaded() -> list[str]:
    """File names of the CUDA libraries that this process has loaded."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    names = {line.rpartition("/")[2] for line in lines if "/" in line}
    return sorted(name for name in names if _LIBRARY.match(name))


def log_lines(folder: pathlib.Path) -> list[str]:
    """Returns what TensorFlow's log of the process says of GPU libraries."""
    log = folder / "log.txt"
    if not log.exists():
        return []
    lines = log.read_text("utf-8", errors="replace").splitlines()
    words = ("Could not load dynamic", "Cannot dlopen", "failed call to cuInit")
    return [line for line in lines if any(word in line for word in words)]


_OPTIONAL = {
    "matplotlib": "plots",
    "nvidia-ml-py": "what the driver tells of GPUs",
    "tensorboard": "Keras's callback of that name",
}
_REINSTALL = (
    "see what `python -c 'import tensorflow, keras'` says; or install what "
    'fits: pip install --upgrade "tensorflow[and-cuda]" keras'
)


def judge_versions(
    versions: dict[str, str], facts: dict[str, Any]
) -> Iterator[Finding]:
    """Judges versions, and what importing them gave.

    Args:
        facts: As the process of this module returns them; or
            `{"error": why it failed}`.
    """
    shown = ", ".join(
        f"{name} {version}"
        for name, version in versions.items()
        if not name.startswith("nvidia-")
    )
    warning = facts.get("warning")
    failed = facts.get("error") or facts.get("import_error")
    if failed:
        text = f"{shown}; starting failed: {failed}"
        hint = warning or _REINSTALL
        yield found("import_failed", "versions", text, hint=hint)
    elif warning:
        yield found("versions_unchecked", "versions", shown, hint=warning)
    else:
        yield fine("versions", "versions", f"{shown} fit together")
    for package, use in _OPTIONAL.items():
        if package not in versions:
            text = f"{package} is not installed ({use})"
            yield found("package_missing", "versions", text, package=package)
    if facts.get("backend", "tensorflow") != "tensorflow":
        text = f"Keras's backend is {facts['backend']}"
        yield found("backend", "versions", text)
    if "xla" in facts:
        yield _judge_xla(facts["xla"])


def _judge_xla(facts: dict[str, Any]) -> Finding:
    if "error" in facts:
        return found("xla", "XLA", f"compiling failed: {facts['error']}")
    return fine("xla", "XLA", f"compiles and runs ({facts['seconds']:.2g} s)")


if __name__ == "__main__":
    child_processes.do_job(main)
