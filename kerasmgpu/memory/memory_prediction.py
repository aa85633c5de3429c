"""Predicts the memory of a model's training step, and what fits a device."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from kerasmgpu.commands import reports, tracing_process
from kerasmgpu.errors import (
    InputError,
    checked_choice,
    checked_counts,
    checked_integer,
    listed,
)
from kerasmgpu.hardware import device_memory as devices
from kerasmgpu.memory import memory_report
from kerasmgpu.memory.memory_report import PARTS
from kerasmgpu.replica_arithmetic import (
    ASSUMED_SIZE,
    checked_replicas_per_worker,
    groups_of,
)
from kerasmgpu.strategy_settings import SHARDS, Settings

DEVICE_TYPES = ("GPU", "CPU")

_REDUCED_BY = {
    "weights": "--shard=weights divides them by the replicas",
    "gathered": "smaller layers: two layers' weights are whole at a time",
    "slots": "--shard=optimizer divides them by the replicas, and with "
    "--offload=optimizer they are in host memory",
    "gradients": "--shard=optimizer divides them by the replicas",
    "activations": "--recompute=auto, more replicas or micro-batches, "
    "mixed_float16, or a smaller --global_batch_size",
    "workspace": "more replicas or micro-batches, or a smaller "
    "--global_batch_size",
    "batch": "more replicas, or a smaller --global_batch_size",
}
"""Maps a part to the settings that reduce it."""


def run(
    build: Callable[[], Any] | str,
    data: Callable[[], Any] | str | None = None,
    replicas: Iterable[int | str] | int = (1, 2, 4, 8),
    *,
    global_batch_size: int | None = None,
    batch_size_per_replica: int | None = None,
    shard: str | Iterable[str] | None = ("none",),
    shard_over: int | None = None,
    offload: str | None = None,
    micro_batches: Iterable[int | str] | int | None = None,
    device_memory: str | None = None,
    recompute: str | None = None,
    replicas_per_worker: int | None = None,
    replicas_per_machine: int | None = None,
    device_type: str = "GPU",
    timeout_seconds: float = 600,
    show: bool = True,
    until_it_fits: bool = False,
) -> dict[str, Any]:
    """Predicts the bytes of each setting; see `kerasmgpu.memory.memory`.

    With `until_it_fits`, values of `shard` behind the first that fits are left
    out for each number of replicas, and progress is told in any case.

    Without `replicas_per_worker`, more replicas than `replicas_per_machine` are
    a worker each, as `kerasmgpu launch` starts them: one process has no more.

    With `batch_size_per_replica` each replica has so many rows, whatever the
    number of replicas, instead of its share of `global_batch_size`.
    """
    numbers = None
    if micro_batches is not None:
        numbers = checked_counts(micro_batches, name="micro_batches")
    if batch_size_per_replica is not None:
        checked_integer(batch_size_per_replica, "batch_size_per_replica", 1)
    asked = Settings(
        shard_over=shard_over, offload=offload, recompute=recompute
    )
    if asked.recompute == "auto" and device_memory is None:
        raise InputError(
            "recompute='auto' makes a step fit device_memory. Received: "
            "device_memory=None; give both, or the size, as recompute='20GiB'"
        )
    memory = None if device_memory is None else devices.parse(device_memory)
    if shard is None:
        shard = "none"
    shards = [shard] if isinstance(shard, str) else list(shard)
    counts = checked_counts(replicas, name="replicas")
    if replicas_per_worker is not None:
        replicas_per_worker = checked_replicas_per_worker(
            replicas_per_worker, counts
        )
    for count in counts:
        groups_of(count, shard_over)
    usable = None if memory is None else devices.usable(memory)
    if not shards:
        raise InputError(f"shard must be one of {', '.join(SHARDS)}")
    run_child = functools.partial(
        tracing_process.run,
        "kerasmgpu.memory.counting",
        "memory.memory",
        build,
        data,
        global_batch_size=global_batch_size,
        timeout_seconds=timeout_seconds,
        show=show or until_it_fits,
        flag="--replicas",
        until_it_fits=until_it_fits,
        replicas=counts,
        replicas_per_worker=replicas_per_worker,
        replicas_per_machine=replicas_per_machine,
        device_type=checked_choice(device_type, "device_type", DEVICE_TYPES),
        shard=[checked_choice(one, "shard", SHARDS) for one in shards],
        settings=asked.given(),
        micro_batches=numbers,
        batch_size_per_replica=batch_size_per_replica,
        usable=usable,
    )
    most, *others = sorted(set(counts), reverse=True)
    counted, notes = run_child(devices=most), []
    if counted.pop("sets_distribution"):
        notes = _add_meshes(counted, others, run_child)
    report = {**counted, "device_memory": device_memory, "usable": usable}
    report["notes"] = notes + _notes(report)
    report["verdict"] = verdict(report)
    if show:
        memory_report.print_memory(report)
    return report


def _add_meshes(
    report: dict[str, Any],
    counts: Iterable[int],
    run_child: Callable[..., dict[str, Any]],
) -> list[str]:
    """Adds rows of the meshes that a program sets on fewer devices.

    Args:
        report: Dictionary of the most devices, to whose `"rows"` they are added.
        run_child: Function of keyword `devices` that returns such a dictionary.

    Returns:
        List of strings: why there is no mesh of a number of devices.
    """
    rows, notes = report["rows"], []
    for count in counts:
        try:
            found = run_child(devices=count)["rows"]
        except InputError as error:
            notes.append(f"no mesh of {count}: {error}")
            continue
        rows[:0] = [row for row in found if row not in rows]
    return notes


def verdict(report: dict[str, Any]) -> str | None:
    """Returns a sentence: what fits, or what would reduce the largest part.

    Returns `None` if no device's memory was given.
    """
    if report["usable"] is None:
        return None
    rows = report["rows"]
    fitting = [row for row in rows if row["fits"]]
    device = report["device_memory"]
    usable = memory_report.size(report["usable"])
    if fitting:
        best = min(fitting, key=lambda row: (row["replicas"], cost(row)))
        return (
            f"{device} ({usable} for tensors): fits on {_setting(best)}, with "
            f"{memory_report.size(best['total'])} per replica."
        )
    least = min(rows, key=lambda row: row["total"])
    largest = max(PARTS, key=lambda part: least[part])
    more = ""
    if least["mesh"] is None:
        rows = report["global_batch_size"]
        more = memory_report.advice_for_few_rows(rows, least["replicas"])
    return (
        f"{device} ({usable} for tensors): nothing fits. The least is "
        f"{memory_report.size(least['total'])} on {_setting(least)}; the "
        f"largest part are the {largest}, "
        f"{memory_report.size(least[largest])}: "
        f"{_reduced_by(largest, least)}.{more}"
    )


def _reduced_by(part: str, row: dict[str, Any]) -> str:
    """Returns the settings that reduce a part of a row."""
    if row["mesh"] is not None and "--shard" in _REDUCED_BY[part]:
        return "divide more of them in the layout map, or over more devices"
    return _REDUCED_BY[part]


def cost(row: dict[str, Any]) -> tuple[int, bool, int]:
    """Returns a key that sorts a report's rows by the time of their settings.

    Settings that communicate less come first, then fewer micro-batches."""
    order = ("none", "optimizer", "embeddings", "weights", "layout")
    is_offloaded = row["offload"] is not None
    return order.index(row["shard"]), is_offloaded, row["micro_batches"]


def _setting(row: dict[str, Any]) -> str:
    chosen = memory_report.settings(row)
    last = f"--micro_batches={chosen.pop('micro_batches')}"
    if row["mesh"] is not None:
        flags = [*memory_report.flags(chosen), last]
        return (
            f"the mesh {reports.mesh_text(row['mesh'])} with {' '.join(flags)}"
        )
    replicas = "replica" if row["replicas"] == 1 else "replicas"
    flags = memory_report.flags({"shard": row["shard"], **chosen})
    return f"{row['replicas']} {replicas} with {' '.join(flags)} and {last}"


def _notes(report: dict[str, Any]) -> list[str]:
    notes = []
    assumed = sorted(
        {name for row in report["rows"] for name in row["assumed"]}
    )
    if assumed:
        notes.append(
            "sizes and rounds that are known only when the step runs are taken "
            f"as {ASSUMED_SIZE}; with more, more memory is needed: "
            + listed(assumed, 3)
        )
    if report["jit_compile"]:
        notes.append(
            "jit_compile=True: tensors that only elementwise operations read "
            "are not counted, and what they are computed from is kept instead"
        )
    return notes
