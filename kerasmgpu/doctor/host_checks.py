"""Judges facts of machines: CPUs, memory, limits, environment, data folder."""

from collections.abc import Iterator
from typing import Any

from kerasmgpu.doctor.catalogue import found
from kerasmgpu.doctor.findings import Finding, fine

_LEAST_SHARED_MEMORY = 1 << 30
"""NCCL's transport between GPUs without peer access needs tens of MB per pair;
Docker's default is 64 MB in all."""
_LEAST_OPEN_FILES = 4096
_LEAST_FREE = 5 << 30
_SLOW_DISK = 100e6  # Bytes per second: a hard disk reads faster.

_EFFECTS = {
    "CUDA_VISIBLE_DEVICES": "only these GPUs are visible, numbered from 0",
    "CUDA_LAUNCH_BLOCKING": "kernels run one by one, slowly: only for debugging",
    "TF_DETERMINISTIC_OPS": "deterministic operations are slower",
    "TF_FORCE_GPU_ALLOW_GROWTH": "kerasmgpu lets memory grow by itself",
    "TF_XLA_FLAGS": "may compile everything: compare speeds without it",
}


def judge_host(facts: dict[str, Any]) -> Iterator[Finding]:
    """Judges the facts that `host_facts` returns."""
    usable, quota = facts["usable_cpus"], facts["cgroup_cpus"]
    cpus = f"{usable} of {facts['cpus']} CPUs"
    if quota is not None and quota < usable:
        text = f"{cpus}, of which the container may use the time of {quota:.3g}"
        yield found("cpu_quota", "host", text)
    else:
        yield fine("cpus", "host", cpus)
    memory, limit = facts["memory"], facts["cgroup_memory"]
    sizes = (
        f"{_gib(memory['available'])} of {_gib(memory['total'])} of memory are "
        "available"
    )
    if limit is not None and limit < memory["total"]:
        text = f"{sizes}; the container may use {_gib(limit)}"
        yield found("memory_limit", "host", text)
    else:
        yield fine("memory", "host", sizes)
    shared = facts["shared_memory"]
    is_small = shared is None or shared["free"] < _LEAST_SHARED_MEMORY
    text = f"/dev/shm: {_gib(shared['free']) if shared else 'nothing'} free"
    yield (found if is_small else fine)("shared_memory", "host", text)
    files = facts["open_files"]
    few = files is not None and files < _LEAST_OPEN_FILES
    text = f"a process may open {files or 'any number of'} files"
    yield (found if few else fine)("open_files", "host", text)
    for name, value in facts["environment"].items():
        yield _variable(name, value)
    if "data_dir" in facts:
        yield from _data_dir(facts["data_dir"])


def _variable(name: str, value: str) -> Finding:
    text, effect = f"{name}={value}", _EFFECTS.get(name)
    if name.startswith("NCCL_") and name.endswith("_DISABLE") and value != "0":
        effect = "NCCL leaves out a kind of link: unset it unless it is meant"
    if effect is None:
        return fine("variable", "environment", text)
    return found("variable", "environment", text, effect=effect)


def _data_dir(facts: dict[str, Any]) -> Iterator[Finding]:
    folder = "data folder"
    few = facts["free"] < _LEAST_FREE
    text = f"{_gib(facts['free'])} free"
    yield (found if few else fine)("disk_space", folder, text)
    if "error" in facts:
        yield found("disk_failed", folder, f"can't be used: {facts['error']}")
    if "read_bytes_per_second" in facts:
        read, write = (
            facts[f"{way}_bytes_per_second"] for way in ("read", "write")
        )
        text = f"reads {read / 1e6:,.0f} MB/s, writes {write / 1e6:,.0f} MB/s"
        is_slow = read < _SLOW_DISK
        yield (found if is_slow else fine)("disk_speed", folder, text)


def _gib(size: int) -> str:
    return f"{size / 2**30:,.3g} GiB"
