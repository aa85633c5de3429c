"""Counts bytes, as the process `python -m kerasmgpu.memory.counting FOLDER`.

It is a child process, so that no parent imports TensorFlow.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from kerasmgpu.commands import child_processes, tracing_process, user_errors
from kerasmgpu.errors import InputError
from kerasmgpu.memory.state_bytes import Setting, state_bytes
from kerasmgpu.replica_arithmetic import (
    MIN_SHARD_BYTES,
    groups_of,
    require_rows,
)

MOST_PARTS = 16
"""Most micro-batches that are tried: a step of more takes long to write."""

LEAST_SAVED = 0.02
"""Share of a step's bytes that doubling the micro-batches must save, for more
to be tried."""


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Traces the model of a job, and counts the bytes of each setting.

    Args:
        job: Dictionary, as `memory_prediction.run` makes it.

    Returns:
        Dictionary that `memory_prediction.run` completes to the report.
    """
    # Imported here, so that errors name the user's function.
    from kerasmgpu.commands.traced_step import num_parameters, trace_job
    from kerasmgpu.memory.traced_step import with_variables

    # Traced once: its replicas are imagined, whatever their number.
    model, step = trace_job(job)
    step = with_variables(model, step)
    distribution = step.distribution
    if distribution is None:
        rows = _rows(step, job)
    else:
        if set(job["shard"]) != {"none"}:
            raise InputError(
                "a keras.distribution says what is divided. Received: "
                f"shard={', '.join(job['shard'])}, and a program that sets "
                f"{distribution}; call kerasmgpu memory without shard"
            )
        num_replicas = distribution.device_mesh.devices.size
        rows = settings(step, job, num_replicas, distribution)
    return {
        "sets_distribution": distribution is not None,
        "model": model.name,
        "parameters": num_parameters(model),
        "global_batch_size": step.rows,
        "jit_compile": step.jit_compile,
        "rows": rows,
    }


def _rows(step: Any, job: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the report's rows for each `shard` and number of replicas."""
    rows, fitting = [], set()
    for shard in job["shard"]:
        for number in job["replicas"]:
            if job.get("until_it_fits") and (
                number in fitting or number == 1 and shard != "none"
            ):
                continue  # A single replica has none to divide with.
            rows += settings(step, job, number, shard)
            if any(row["fits"] for row in rows if row["replicas"] == number):
                fitting.add(number)
    return rows


def settings(
    step: Any, job: dict[str, Any], num_replicas: int, shard: Any
) -> list[dict[str, Any]]:
    """Returns the report's rows, one for each of the job's `"micro_batches"`.

    If these are `None`, there is one row: of the first number that fits or, if
    nothing fits, of the number that needs least; of 1, if the job's `"usable"`
    bytes are `None`. It also has the `"whole_total"` of one micro-batch.

    Args:
        job: Dictionary, see `main`, or of `memory_advice.job_of`.
        shard: One of `state_bytes.SHARDS`, or a `keras.distribution`'s
            `Distribution` of so many devices, or its `Layouts`.
    """
    from kerasmgpu.strategies.layouts import check_micro_batches

    setting, shares = setting_of(step, job, num_replicas, shard)
    division: Any = setting.shard
    rows = setting.rows or step.rows

    def row(micro_batches: int) -> dict[str, Any]:
        require_rows(micro_batches, rows)
        if not isinstance(shard, str):
            check_micro_batches(division, micro_batches)
        in_parts = dataclasses.replace(setting, micro_batches=micro_batches)
        return _row(step, job, shard, in_parts)

    if job["micro_batches"] is not None:
        return [row(number) for number in job["micro_batches"]]
    most = min(-(-rows // shares), MOST_PARTS) if setting.divides_rows else 1
    limit = job["usable"] if job.get("until_it_fits") else None
    return [_fewest_that_fit(row, most, limit)]


def setting_of(
    step: Any, job: dict[str, Any], num_replicas: int, shard: Any
) -> tuple[Setting, int]:
    """Returns the setting of a job, of one micro-batch, and its shares of rows.

    Args:
        shard: See `settings`.
    """
    from kerasmgpu.strategies.layouts import layouts_of

    num_workers = -(-num_replicas // _per_worker(job, num_replicas))
    division, shares, groups = shard, num_replicas, 1
    if not isinstance(shard, str):
        division = layouts_of(shard, num_workers)
        shares = division.num_row_shares
    elif shard in ("optimizer", "weights"):
        groups = groups_of(num_replicas, job.get("shard_over"))
    rows = step.rows
    if job["batch_size_per_replica"] is not None:
        rows = job["batch_size_per_replica"] * shares
    setting = Setting(
        num_replicas,
        division,
        rows=rows,
        num_workers=num_workers,
        device_type=job["device_type"],
        groups=groups,
        recompute=job.get("recompute"),
        limit=job["usable"],
        offloads=bool(job.get("offload")),
        min_shard_bytes=job.get("min_shard_bytes", MIN_SHARD_BYTES),
    )
    return setting, shares


def _per_worker(job: dict[str, Any], num_replicas: int) -> int:
    """Returns the replicas of each process; see `memory_prediction.run`."""
    if job["replicas_per_worker"] is not None:
        return int(job["replicas_per_worker"])
    most = job.get("replicas_per_machine") or num_replicas
    return num_replicas if num_replicas <= most else 1


def _fewest_that_fit(
    row: Callable[[int], dict[str, Any]], most: int, limit: int | None
) -> dict[str, Any]:
    """Returns the row of the fewest micro-batches that fit; see `settings`.

    Args:
        limit: Integer, bytes. More micro-batches are not tried if what is held
            in any case needs more.
    """
    best = whole = row(1)
    held = max(
        whole["weights"] + whole["slots"], whole["built"], whole["loaded"]
    )
    if limit is not None and held > limit:
        most = 1
    number = 2
    while best["fits"] is False and number // 2 < most:
        other = row(min(number, most))
        saved = best["total"] - other["total"]
        if other["fits"] or saved > 0:
            best = other
        if saved < LEAST_SAVED * other["total"]:
            break
        number *= 2
    return {**best, "whole_total": whole["total"]}


def _row(
    step: Any, job: dict[str, Any], shard: Any, setting: Setting
) -> dict[str, Any]:
    """Returns the report's row of one setting; see `settings`."""
    from kerasmgpu.memory.building import building_bytes
    from kerasmgpu.memory.step_memory import step_peak
    from kerasmgpu.strategies.layouts import mesh_of

    num_replicas, groups = setting.num_replicas, setting.groups
    name, mesh = shard, None
    if not isinstance(shard, str):
        name, mesh = "layout", mesh_of(shard)
    tracing_process.tell(
        job,
        f"writing the step for replicas={num_replicas}, shard={name}, "
        f"micro_batches={setting.micro_batches} …",
    )
    state = state_bytes(step.variables, setting)
    peak = step_peak(step, setting)
    # Replicas on CPUs have one memory, that of their worker.
    slots = state.slots + (state.host if setting.shares_memory else 0)
    copies = setting.copies
    total = copies * (state.weights + slots + state.other) + peak.total
    building = building_bytes(step.variables, setting)
    most = max(total, building.built, building.loaded)
    return {
        "replicas": num_replicas,
        "shard": name,
        "shard_over": num_replicas // groups if groups > 1 else None,
        "offload": "optimizer" if state.host else None,
        "recompute": setting.recompute,
        "mesh": mesh,
        "micro_batches": setting.micro_batches,
        "weights": copies * state.weights,
        "gathered": peak.gathered,
        "slots": copies * slots,
        "gradients": peak.gradients,
        "activations": peak.activations,
        "workspace": peak.workspace + peak.constants + copies * state.other,
        "batch": peak.batch,
        "total": total,
        "built": building.built,
        "loaded": building.loaded,
        "loading_host": building.host,
        "host": peak.host,
        "fits": None if job["usable"] is None else most <= job["usable"],
        "assumed": peak.assumed,
    }


if __name__ == "__main__":
    child_processes.do_job(user_errors.naming_the_function(main))
