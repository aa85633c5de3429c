"""Predicts the memory of a model's training step, and what fits a device."""

import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from kerasmgpu.commands import child_processes, references
from kerasmgpu.commands.command_line import LOADING
from kerasmgpu.errors import (
    InputError,
    checked_choice,
    checked_counts,
    checked_integer,
    checked_number,
)
from kerasmgpu.memory import device_memory as devices
from kerasmgpu.memory import memory_report
from kerasmgpu.memory.state_bytes import SHARDS

PARTS = (
    "weights",
    "gathered",
    "slots",
    "gradients",
    "activations",
    "workspace",
    "batch",
)
"""Parts of a replica's memory, whose sum is `"total"`."""

_REDUCED_BY = {
    "weights": "--shard=weights divides them by the replicas",
    "gathered": "smaller layers: one layer's weights are whole while it runs",
    "slots": "--shard=optimizer divides them by the replicas",
    "gradients": "--shard=optimizer divides them by the replicas",
    "activations": "more replicas or micro-batches, keras.remat, "
    "mixed_float16, or a smaller --global_batch_size",
    "workspace": "more replicas or micro-batches, or a smaller "
    "--global_batch_size",
    "batch": "more replicas, or a smaller --global_batch_size",
}
"""Maps a part to the settings that reduce it."""


def run(
    build: Callable[[], Any] | str,
    data: Callable[[], Any] | str | None = None,
    replicas: Iterable[int | str] = (1, 2, 4, 8),
    *,
    global_batch_size: int | None = None,
    shard: str | Iterable[str] = ("none",),
    micro_batches: Iterable[int | str] | None = None,
    device_memory: str | None = None,
    timeout_seconds: float = 600,
    show: bool = True,
) -> dict[str, Any]:
    """Predicts the bytes of each setting; see `kerasmgpu.memory.memory`."""
    numbers = None
    if micro_batches is not None:
        numbers = [
            checked_integer(number, "micro_batches", 1)
            for number in micro_batches
        ]
    if global_batch_size is not None:
        checked_integer(global_batch_size, "global_batch_size", 1)
    memory = None if device_memory is None else devices.parse(device_memory)
    shards = [shard] if isinstance(shard, str) else list(shard)
    job = {
        "build": references.reference(build, "build"),
        "data": None if data is None else references.reference(data, "data"),
        "replicas": checked_counts(replicas),
        "shard": [checked_choice(one, "shard", SHARDS) for one in shards],
        "micro_batches": numbers,
        "global_batch_size": global_batch_size,
        "usable": None if memory is None else devices.usable(memory),
        "sys_path": [os.path.abspath(path) for path in sys.path],
    }
    if not job["shard"]:
        raise InputError(f"shard must be one of {', '.join(SHARDS)}")
    if show:
        print(f"tracing {job['build']}: {LOADING}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-memory-") as folder:
        counted = child_processes.run_job(
            "kerasmgpu.memory.counting",
            job,
            pathlib.Path(folder),
            checked_number(timeout_seconds, "timeout_seconds"),
            {"CUDA_VISIBLE_DEVICES": "-1"},
        )
    report = {
        **counted,
        "build": job["build"],
        "device_memory": device_memory,
        "usable": job["usable"],
    }
    report["notes"] = _notes(report)
    report["verdict"] = verdict(report)
    if show:
        memory_report.print_memory(report)
    return report


def verdict(report: dict[str, Any]) -> str | None:
    """Returns a sentence: what fits, or what would reduce the largest part.

    Args:
        report: Dictionary, as `run` returns it.

    Returns:
        String, or `None` if no device's memory was given.
    """
    if report["usable"] is None:
        return None
    rows = report["rows"]
    fitting = [row for row in rows if row["fits"]]
    device = report["device_memory"]
    usable = memory_report.size(report["usable"])
    if fitting:
        best = min(fitting, key=lambda row: (row["replicas"], _cost(row)))
        return (
            f"{device} ({usable} for tensors): fits on {_setting(best)}, with "
            f"{memory_report.size(best['total'])} per replica."
        )
    least = min(rows, key=lambda row: row["total"])
    largest = max(PARTS, key=lambda part: least[part])
    return (
        f"{device} ({usable} for tensors): nothing fits. The least is "
        f"{memory_report.size(least['total'])} on {_setting(least)}; the "
        f"largest part are the {largest}, "
        f"{memory_report.size(least[largest])}: {_REDUCED_BY[largest]}."
    )


def _cost(row: dict[str, Any]) -> tuple[int, int]:
    """Settings that communicate less come first, then fewer micro-batches."""
    order = ("none", "optimizer", "embeddings", "weights")
    return order.index(row["shard"]), row["micro_batches"]


def _setting(row: dict[str, Any]) -> str:
    replicas = "replica" if row["replicas"] == 1 else "replicas"
    return (
        f"{row['replicas']} {replicas} with --shard={row['shard']} and "
        f"--micro_batches={row['micro_batches']}"
    )


def _notes(report: dict[str, Any]) -> list[str]:
    notes = []
    assumed = sorted(
        {name for row in report["rows"] for name in row["assumed"]}
    )
    if assumed:
        shown = ", ".join(assumed[:3]) + (", …" if assumed[3:] else "")
        notes.append(
            "sizes that are known only when the step runs are taken as 64: "
            f"{shown}"
        )
    if report["jit_compile"]:
        notes.append(
            "jit_compile=True: tensors that only elementwise operations read "
            "are not counted, and what they are computed from is kept instead"
        )
    return notes
