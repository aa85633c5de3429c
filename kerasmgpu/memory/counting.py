"""Counts bytes, as the process `python -m kerasmgpu.memory.counting FOLDER`.

It is a child process, so that no parent imports TensorFlow.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerasmgpu.commands import child_processes, tracing_process, user_errors
from kerasmgpu.errors import InputError
from kerasmgpu.memory.state_bytes import Setting, state_bytes
from kerasmgpu.replica_arithmetic import require_rows

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
        rows = _counted(step, job, "none", num_replicas)
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
            if job["until_it_fits"] and (
                number in fitting or number == 1 and shard != "none"
            ):
                continue  # A single replica has none to divide with.
            rows += _counted(step, job, shard, number)
            if any(row["fits"] for row in rows if row["replicas"] == number):
                fitting.add(number)
    return rows


def _counted(
    step: Any, job: dict[str, Any], shard: str, num_replicas: int
) -> list[dict[str, Any]]:
    """Returns the report's rows for a `shard` and a number of replicas."""
    setting = setting_of(step, job, shard, num_replicas)
    tell = functools.partial(tracing_process.tell, job)
    return settings(
        step, setting, job["micro_batches"], job["until_it_fits"], tell
    )


def setting_of(
    step: Any, job: dict[str, Any], shard: str, num_replicas: int
) -> Setting:
    """Returns the `Setting` of a job; layouts of the program replace `shard`."""
    from kerasmgpu.strategies.layouts import Layouts

    num_workers = -(-num_replicas // _per_worker(job, num_replicas))
    layouts, shares = None, num_replicas
    if step.distribution is not None:
        layouts = Layouts(step.distribution)
        layouts.check_workers(num_workers)
        shares = layouts.num_row_shares
    each = job["batch_size_per_replica"]
    return Setting(
        num_replicas,
        layouts,
        rows=step.rows if each is None else each * shares,
        num_workers=num_workers,
        device_type=job["device_type"],
        limit=job["usable"],
        shard=shard if layouts is None else None,
        **job["settings"],
    )


def settings(
    step: Any,
    setting: Setting,
    numbers: Sequence[int] | None,
    until_it_fits: bool = False,
    tell: Callable[[str], None] = lambda line: None,
    temporary: Mapping[str, int] | None = None,
) -> list[dict[str, Any]]:
    """Returns the report's rows of a setting, one for each of some micro-batches.

    Args:
        numbers: Sequence of integers, the micro-batches. With `None` there is one
            row: of the first number that fits or, if nothing fits, of the number
            that needs least; of 1, if `setting` has no limit. It also has the
            `"whole_total"` of one micro-batch.
        until_it_fits: Whether to try fewer of them; see `_fewest_that_fit`.
        tell: Function that is called with lines on the progress.
        temporary: See `step_memory.step_peak`; of the one number that is given.
    """
    from kerasmgpu.strategies.layouts import check_micro_batches

    layouts: Any = setting.layouts
    rows = setting.rows or step.rows

    def row(micro_batches: int) -> dict[str, Any]:
        require_rows(micro_batches, rows)
        if layouts is not None:
            check_micro_batches(layouts, micro_batches)
        in_parts = dataclasses.replace(setting, micro_batches=micro_batches)
        return _row(step, in_parts, tell, temporary)

    if numbers is not None:
        return [row(number) for number in numbers]
    shares = setting.num_replicas if layouts is None else layouts.num_row_shares
    most = (
        min(-(-rows // shares), MOST_PARTS)
        if setting.division.divides_rows
        else 1
    )
    limit = setting.limit if until_it_fits else None
    return [_fewest_that_fit(row, most, limit)]


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
    step: Any,
    setting: Setting,
    tell: Callable[[str], None],
    temporary: Mapping[str, int] | None,
) -> dict[str, Any]:
    """Returns the report's row of one setting; see `settings`."""
    from kerasmgpu.memory.building import building_bytes
    from kerasmgpu.memory.step_memory import step_peak

    num_replicas, groups = setting.num_replicas, setting.groups
    layouts: Any = setting.layouts
    name = setting.shard or "none" if layouts is None else "layout"
    tell(
        f"writing the step for replicas={num_replicas}, shard={name}, "
        f"micro_batches={setting.micro_batches} …",
    )
    state = state_bytes(step.variables, setting)
    peak = step_peak(step, setting, temporary)
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
        "mesh": layouts and layouts.mesh,
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
        "fits": None if setting.limit is None else most <= setting.limit,
        "assumed": peak.assumed,
    }


if __name__ == "__main__":
    child_processes.do_job(user_errors.naming_the_function(main))
