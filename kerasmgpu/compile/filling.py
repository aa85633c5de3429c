"""Starts a process for each number of replicas, which compiles the steps."""

import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from kerasmgpu.commands import child_processes, references, reports
from kerasmgpu.commands.command_line import say_loading
from kerasmgpu.errors import (
    InputError,
    checked_choice,
    checked_counts,
    checked_number,
)
from kerasmgpu.replica_arithmetic import checked_replicas_per_worker
from kerasmgpu.strategy_settings import settings_of_command

STEPS = ("train", "test", "predict")
"""Steps of `fit`, `evaluate` (and validation in `fit`) and `predict`."""


def fill(
    build: Callable[[], Any] | str,
    data: Callable[[], Any] | str | None = None,
    replicas: Sequence[int] | int = (1,),
    *,
    output: str | None = None,
    steps: Sequence[str] | str = ("train",),
    global_batch_size: Sequence[int] | int | None = None,
    replicas_per_worker: int | None = None,
    shard: str | None = None,
    micro_batches: int = 1,
    timeout_seconds: float = 3600,
    show: bool = True,
) -> dict[str, Any]:
    """Compiles a model's steps with XLA, and keeps the programs in a folder.

    Args:
        build: Function without arguments that returns a compiled
            `keras.Model`, or its name; see `kerasmgpu.memory.memory`.
        data: Function that returns the data, its name, or `None`.
        replicas: Integer or sequence of integers, numbers of replicas of the
            jobs.
        output: String, folder to keep the programs in; others that are there
            stay.
        steps: One or several of `"train"`, `"test"` and `"predict"`.
        global_batch_size: Sequence of integers, rows of a global batch of
            arrays; the last batch of an epoch may be smaller, and is another
            number. Default: 32. Batches have the rows that they have.
        replicas_per_worker: Integer, replicas of each process of a job; its
            processes are started on this machine. Default: all are in one.
        shard: String, what the job's strategy divides. Default: `"none"`.
        micro_batches: Integer, micro-batches of the job's strategy. Defaults
            to 1.
        timeout_seconds: Number, limit for each number of replicas. Defaults to
            3600.
        show: Boolean, whether to print progress and the table. Defaults to
            `True`.

    Returns:
        Dictionary: `"folder"`; `"versions"`, what the programs depend on;
        `"programs"` and `"bytes"`, how many of them the folder has for these
        versions, and how large they are; and `"rows"`, one for each step, with
        `"replicas"`, `"workers"`, `"mesh"` of a `keras.distribution` (sizes by
        name) or `None`, `"step"`, `"global_batch_size"`, `"compiled"`, programs
        that were not there before, and `"seconds"`.

    Raises:
        InputError: If an argument is invalid, or the model can't be compiled.
    """
    if not output:
        raise InputError(
            "give the folder for the programs: --output=compiled. Received: none"
        )
    reports.require_folder(output, "--output")
    folder = pathlib.Path(output).expanduser().absolute()
    counts = checked_counts(replicas, name="replicas")
    per_worker = None
    if replicas_per_worker is not None:
        per_worker = checked_replicas_per_worker(replicas_per_worker, counts)
    sizes = None
    if global_batch_size is not None:
        sizes = checked_counts(global_batch_size, name="global_batch_size")
    names = [steps] if isinstance(steps, str) else list(steps)
    job = {
        **references.job(build, data, "compile.filling.fill"),
        "steps": [checked_choice(name, "steps", STEPS) for name in names],
        "global_batch_sizes": sizes,
        "strategy": settings_of_command(shard, micro_batches),
        "folder": str(folder),
    }
    if not names:
        raise InputError(f"steps must be of {', '.join(STEPS)}. Received: none")
    seconds = checked_number(timeout_seconds, "timeout_seconds")
    report: dict[str, Any] = {"folder": str(folder), "rows": []}
    for count in counts:
        workers = count // (per_worker or count)
        job |= {"replicas": count // workers, "workers": workers}
        if show:
            say_loading(f"compiling {job['build']} for {count} replicas")
        with tempfile.TemporaryDirectory(prefix="kerasmgpu-compile-") as name:
            made = child_processes.run_job(
                "kerasmgpu.compile.child",
                job,
                pathlib.Path(name),
                seconds,
                {"KERASMGPU_XLA_CACHE": str(folder)},
            )
        report["rows"] += made.pop("rows")
        report |= made
    if show:
        print_programs(report)
    return report


def print_programs(report: dict[str, Any]) -> None:
    """Prints the steps that were compiled, and what the folder has."""
    console = reports.console()
    columns = ["rows", "compiled", "seconds"]
    table = reports.table(
        "Compiled with XLA", "replicas", "step", right=columns
    )
    for row in report["rows"]:
        workers = row["workers"]
        table.add_row(
            str(row["replicas"])
            + (f" in {workers} workers" if workers > 1 else "")
            + (f" ({reports.mesh_text(row['mesh'])})" if row["mesh"] else ""),
            row["step"],
            f"{row['global_batch_size']:,}",
            f"{row['compiled']} programs",
            f"{row['seconds']:.1f}",
        )
    console.print(table)
    versions = report["versions"]
    device = versions.get("GPU") or versions["CPU"]
    reports.say(
        console,
        f"{report['folder']}: {report['programs']} programs "
        f"({report['bytes'] / 2**20:.1f} MiB) for TensorFlow "
        f"{versions['TensorFlow']} on {device}",
    )
    reports.say(
        console,
        f"copy it to the nodes, and start the job with "
        f"KERASMGPU_XLA_CACHE={report['folder']}",
    )
