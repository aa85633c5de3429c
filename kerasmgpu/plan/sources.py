"""Reads one replica's step from a file, or measures it."""

import dataclasses
import json
import math
import os
import pathlib
import tempfile
from typing import Any

from kerasmgpu.callbacks import json_lines
from kerasmgpu.commands import child_processes, references, tracing_process
from kerasmgpu.errors import InputError, checked_integer, checked_number
from kerasmgpu.plan.mesh_time import MeshAxis
from kerasmgpu.plan.step_time import Step
from kerasmgpu.stores.places import place

BYTES_PER_PARAMETER = 4
"""Gradients are float32 like the variables, also under mixed precision."""

_WAITING = 0.1
"""Share of a step spent waiting above which training is input-bound."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """A step, notes on how it was measured, and whether it is for a mesh."""

    step: Step
    notes: tuple[str, ...] = ()
    sets_distribution: bool = False


def from_file(
    path: str | os.PathLike[str],
    workload: str | None = None,
    contender: str = "kerasmgpu",
) -> Measured:
    """Reads a `benchmark.json`, or a file of `ThroughputLogger`.

    Args:
        workload: String, a workload of the benchmark. Default: its only one.
        contender: String, a contender of the benchmark. Defaults to
            `"kerasmgpu"`.

    Raises:
        InputError: If the file can't be read, or has no run on one replica.
    """
    try:
        text = place(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--from={path} can't be read: {error}") from None
    content = _content(path, text)
    try:
        if "rows" in content:
            return _from_benchmark(path, content, workload, contender)
        return _from_throughput(path, content)
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{path}: a value is missing or wrong ({error}); write the file "
            "again with python -m benchmarks or ThroughputLogger"
        ) from None


def _content(path: str | os.PathLike[str], text: str) -> dict[str, Any]:
    """Returns the object of a JSON file, or the last one of a JSON Lines file."""
    try:
        candidates = [json.loads(text)]
    except ValueError:
        candidates = json_lines.parse(text)[0][-1:]
    for content in candidates:
        if not isinstance(content, dict):
            continue
        if "num_replicas" in content:  # The key's name in version 0.1.
            content.setdefault("replicas", content["num_replicas"])
        if {"rows", "replicas"} & set(content):
            return content
    raise InputError(
        f"{path} is neither a benchmark.json of python -m benchmarks nor a "
        "file of ThroughputLogger"
    )


def _from_benchmark(
    path: str | os.PathLike[str],
    report: dict[str, Any],
    workload: str | None,
    contender: str,
) -> Measured:
    names = list(dict.fromkeys(row["workload"] for row in report["rows"]))
    if workload is None and len(names) == 1:
        (workload,) = names
    if workload not in names:
        raise InputError(
            f"--workload must be one of {', '.join(names)}, which are in "
            f"{path}. Received: {workload}"
        )
    rows = {
        row["replicas"]: row
        for row in report["rows"]
        if (row["workload"], row["contender"]) == (workload, contender)
        and row["runs"]
    }
    if 1 not in rows:
        raise InputError(
            f"{path} has no run of {contender} on 1 replica for {workload}; "
            "measure with --replica_counts=1,2"
        )
    facts = next(
        run["result"]
        for run in report["runs"]
        if "result" in run and run["workload"] == workload
    )
    host = {n: row["host_cpu_ms_per_step"]["median"] for n, row in rows.items()}
    one, most = host[1] / 1000, max(host)
    further = max(0.0, (host[most] - host[1]) / 1000 / max(1, most - 1))
    notes = []
    if report["settings"]["virtual_devices"]:
        notes.append(
            "measured on CPU devices, where CPU time includes the model's "
            "arithmetic: the host time is the CPU time that each further "
            f"replica added ({further * 1e3:.2f} ms)"
        )
        one = further
    if most == 1:
        notes.append(
            "only one replica was measured: host time is assumed to be "
            "proportional to the replicas of a machine"
        )
    step = Step(
        rows=facts["global_batch_size"],
        compute_seconds=rows[1]["wall_ms_per_step"]["median"] / 1000,
        reduced_bytes=BYTES_PER_PARAMETER * facts["parameters"],
        host_seconds=one,
        host_seconds_per_replica=further if most > 1 else None,
    )
    return Measured(step, tuple(notes))


def _from_throughput(
    path: str | os.PathLike[str], record: dict[str, Any]
) -> Measured:
    if record["replicas"] != 1:
        raise InputError(
            f"{path} was logged on {record['replicas']} replicas. Expected: a "
            "log of one replica"
        )
    seconds, share = record["step_seconds_median"], record["input_wait_share"]
    if seconds is None or share is None:
        raise InputError(
            f"the last epoch in {path} has no step time, because compilation "
            "took part in all its steps; log one more epoch"
        )
    waits = share > _WAITING
    notes = []
    if waits:
        notes.append(
            f"the step waited for input {share:.0%} of the time: the input "
            "rate is the measured examples/s, compute the rest of the step"
        )
    rows = max(1, round(record["examples"] / record["steps"]))
    step = Step(
        rows=rows,
        compute_seconds=seconds * (1 - share),
        reduced_bytes=0.0,
        input_rows_per_second=rows / seconds if waits else math.inf,
    )
    return Measured(step, tuple(notes))


def from_module(
    build: str, steps: int = 20, timeout_seconds: float = 600, devices: int = 1
) -> Measured:
    """Measures the user's model on one replica, in a child process.

    Args:
        build: String, `"my_module:build"` or `"file.py:build"`; the function
            and its data are as for `kerasmgpu.verify`.
        steps: Integer, steps to measure. Defaults to 20.
        devices: Integer, how many a program with `keras.distribution` finds.
            Its step is measured on one; see `on_mesh`.

    Raises:
        InputError: If the model can't be trained.
    """
    job = {
        **references.job(build, None, "plan.sources.from_module"),
        "steps": checked_integer(steps, "steps", minimum=1),
        "devices": devices,
    }
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-plan-") as folder:
        result = child_processes.run_job(
            "kerasmgpu.plan.measuring",
            job,
            pathlib.Path(folder),
            checked_number(timeout_seconds, "timeout_seconds"),
        )
    notes = [f"measured on {result['device']}, {job['steps']} steps"]
    is_mesh = result["sets_distribution"]
    if result["on_cpu"]:
        notes.append(
            "no GPU: compute is the CPU's, and host time, which can't be "
            "measured separately there, is left out; to predict for GPUs, "
            + ("measure on one" if is_mesh else "give --step_seconds of one")
        )
    step = Step(
        rows=result["rows"],
        compute_seconds=result["step_seconds"],
        reduced_bytes=BYTES_PER_PARAMETER * result["parameters"],
        host_seconds=0.0 if result["on_cpu"] else result["host_seconds"],
        input_rows_per_second=result["input_rows_per_second"],
    )
    return Measured(step, tuple(notes), is_mesh)


def on_mesh(
    build: str,
    rows: int,
    devices: int,
    replicas_per_machine: int,
    timeout_seconds: float = 600,
) -> tuple[list[MeshAxis], float]:
    """Counts the step on the mesh that a program sets, in a child process.

    Args:
        devices: Integer, how many the program finds; they needn't exist.

    Returns:
        `(axes, compute_share)`, see `mesh_time.predict_mesh`.

    Raises:
        InputError: If the step can't be traced.
    """
    result = tracing_process.run(
        "kerasmgpu.plan.mesh_counting",
        "plan.sources.on_mesh",
        build,
        None,
        global_batch_size=rows,
        timeout_seconds=timeout_seconds,
        show=True,
        devices=devices,
        replicas_per_machine=replicas_per_machine,
        device_type="GPU",
        flag="--replica_counts",
    )
    axes = [MeshAxis(**axis) for axis in result["axes"]]
    return axes, result["compute_share"]


def with_rows(step: Step, rows: int) -> Step:
    """Returns the step at another batch size, with the variable time scaled."""
    variable = step.compute_seconds - step.fixed_seconds
    seconds = step.fixed_seconds + variable * rows / step.rows
    return dataclasses.replace(step, rows=rows, compute_seconds=seconds)
