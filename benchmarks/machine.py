"""Describes the machine and the versions of a benchmark."""

import importlib.metadata
import os
import pathlib
import platform

import kerasmgpu

_PACKAGES = ("tensorflow", "keras", "jax", "jaxlib", "torch", "numpy")


def describe(gpus):
    """Describes this machine.

    Args:
        gpus: List of strings, as `child_processes.visible_gpus` returns it.

    Returns:
        Dictionary for JSON. `cpu_flags` has the vector instructions, by which
        kernels are chosen. `load_average` is that of the last minute; taken
        before the benchmark, it is the load of other programs.
    """
    return {
        "cpu": _of_cpu("model name")
        or platform.processor()
        or platform.machine(),
        "cpu_flags": sorted(
            flag
            for flag in _of_cpu("flags").split()
            if flag.startswith(("amx", "avx", "fma"))
        ),
        "cores": usable_cores(),
        "memory_gb": round(_memory_bytes() / 1e9, 1),
        "gpus": gpus,
        "os": _operating_system(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def versions():
    """Returns versions of Python, this library and contenders' packages."""
    found = {
        "python": platform.python_version(),
        "kerasmgpu": kerasmgpu.__version__,
    }
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # A contender that is not installed.
    return found


def _of_cpu(key):
    """Returns what Linux says of the first core; `""` if that is nothing."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text("utf-8").splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    return ""


def _operating_system():
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:  # Not Linux, or a bare container.
        name = f"{platform.system()} {platform.release()}"
    return f"{name}, {platform.machine()}"


def usable_cores():
    """Returns the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
