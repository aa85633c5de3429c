"""CPUs, memory, limits, environment and data folder: facts, and findings."""

import os
import pathlib
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from kerasmgpu import stderr_filter
from kerasmgpu.doctor.findings import Finding, fine, found

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
        yield from _judge_data_dir(facts["data_dir"])


def _variable(name: str, value: str) -> Finding:
    text, effect = f"{name}={value}", _EFFECTS.get(name)
    if name.startswith("NCCL_") and name.endswith("_DISABLE") and value != "0":
        effect = "NCCL leaves out a kind of link: unset it unless it is meant"
    if effect is None:
        return fine("variable", "environment", text)
    return found("variable", "environment", text, effect=effect)


def _judge_data_dir(facts: dict[str, Any]) -> Iterator[Finding]:
    folder = "data folder"
    few = facts["free"] < _LEAST_FREE
    text = f"{_gib(facts['free'])} free"
    yield (found if few else fine)("disk_space", folder, text)
    if "error" in facts:
        yield found("disk_failed", folder, f"can't be used: {facts['error']}")
    if "read_bytes_per_second" in facts:
        read = facts["read_bytes_per_second"]
        write = facts["write_bytes_per_second"]
        text = f"reads {read / 1e6:,.0f} MB/s, writes {write / 1e6:,.0f} MB/s"
        is_slow = read < _SLOW_DISK
        yield (found if is_slow else fine)("disk_speed", folder, text)


def _gib(size: int) -> str:
    return f"{size / 2**30:,.3g} GiB"


_CGROUPS = pathlib.Path("/sys/fs/cgroup")
_FIRST_VERSION = {
    "cpu.max": ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
    "memory.max": ("memory/memory.limit_in_bytes",),
}
_TEST_BYTES = 128 << 20
_CHUNK = 4 << 20

_VARIABLES = re.compile(
    r"(CUDA|KERASMGPU|NCCL|NVIDIA_VISIBLE|OMP_NUM|TF_(CONFIG|CPP|CUDNN|"
    r"DETERMINISTIC|ENABLE|FORCE|GPU|MIN_GPU|NUM|XLA)|XLA)(_|$)"
    r"|KERAS_BACKEND$|LD_LIBRARY_PATH$"
)
"""Environment variables that matter, but those that hold a secret."""


def host_facts(data_dir: str | None = None) -> dict[str, Any]:
    """Returns facts of this machine; bytes and seconds are their units.

    Args:
        data_dir: Path of a folder whose speed is measured, or `None`.
    """
    cpu, memory = _cgroup_limits()
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    facts: dict[str, Any] = {
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "cgroup_cpus": cpu,
        "memory": _memory(),
        "cgroup_memory": memory,
        "shared_memory": _disk("/dev/shm"),
        "open_files": None if files == resource.RLIM_INFINITY else files,
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if _VARIABLES.match(name)
            and "TOKEN" not in name
            and not (
                name == stderr_filter.SHOW_VARIABLE
                and stderr_filter.sets_variable
            )
        },
    }
    if data_dir is not None:
        facts["data_dir"] = _measured(data_dir)
    return facts


def _memory() -> dict[str, int]:
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    table = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}
    return {"total": table["MemTotal"], "available": table["MemAvailable"]}


def _cgroup_limits() -> tuple[float | None, int | None]:
    """CPUs and bytes that control groups allow; `None` for no limit."""
    own = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    paths = [line.split(":", 2)[2] for line in own if line.startswith("0::")]
    folder = _CGROUPS / (paths[0].lstrip("/") if paths else "")
    cpus: list[float] = []
    sizes: list[int] = []
    for level in (folder, *folder.parents):
        if not level.is_relative_to(_CGROUPS):
            break
        quota = _numbers(level, "cpu.max")
        if len(quota) == 2:
            cpus.append(quota[0] / quota[1])
        sizes += _numbers(level, "memory.max")
    return min(cpus, default=None), min(sizes, default=None)


def _numbers(folder: pathlib.Path, name: str) -> list[int]:
    """Numbers of a limit, by version 2 or 1; empty where there is none."""
    texts: list[str] = []
    for path in (
        folder / name,
        *(folder / old for old in _FIRST_VERSION[name]),
    ):
        if path.exists():
            texts += path.read_text().split()
            if path.name == name:
                break
    # Version 1 has -1 or almost 2**63 for no limit.
    is_limit = [text.isdecimal() and int(text) < 1 << 60 for text in texts]
    return [int(text) for text in texts] if all(is_limit) else []


def _disk(folder: str) -> dict[str, int] | None:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return {"total": usage.total, "free": usage.free}


def _measured(folder: str) -> dict[str, Any]:
    """Free bytes, and bytes per second written and read, of a folder."""
    facts: dict[str, Any] = {"free": shutil.disk_usage(folder).free}
    size = min(_TEST_BYTES, facts["free"] // 4) // _CHUNK * _CHUNK
    if size == 0:
        return facts
    chunk = os.urandom(_CHUNK)  # Some file systems compress zeros.
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            begin = time.perf_counter()
            for _ in range(size // _CHUNK):
                file.write(chunk)
            os.fsync(file.fileno())
            wrote = time.perf_counter()
            # From the disk, not from the page cache.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            begin_reading = time.perf_counter()
            while file.read(_CHUNK):
                pass
            end = time.perf_counter()
    except OSError as error:
        return {**facts, "error": error.strerror or str(error)}
    facts["write_bytes_per_second"] = size / (wrote - begin)
    facts["read_bytes_per_second"] = size / (end - begin_reading)
    return facts
