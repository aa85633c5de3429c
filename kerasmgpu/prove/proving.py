"""Checks a written step, as `python -m kerasmgpu.prove.proving FOLDER`.

It is a child process, so that no parent imports TensorFlow.
"""

import collections
import functools
import math
from collections.abc import Collection, Iterable
from typing import Any

from kerasmgpu.commands import child_processes, tracing_process, user_errors
from kerasmgpu.errors import InputError
from kerasmgpu.replica_arithmetic import require_rows


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Writes the step of a job for GPUs, and checks it.

    Args:
        job: Dictionary, as `proof.prove` makes it.

    Returns:
        Dictionary: the `"mesh"`, `"layouts"`, `"kernels"`, `"order"`, `"xla"` and
        `"memory"` of the report.
    """
    # Imported here, so that errors name the user's function.
    from kerasmgpu.commands.traced_step import num_parameters, trace_job
    from kerasmgpu.flops.step_flops import layers_in
    from kerasmgpu.memory import counting
    from kerasmgpu.memory.traced_step import with_variables
    from kerasmgpu.memory.written_step import WrittenStep
    from kerasmgpu.partitioner.step import kernels
    from kerasmgpu.prove.compiled_ahead import compile_ahead
    from kerasmgpu.prove.order import check_order
    from kerasmgpu.prove.placement import place
    from kerasmgpu.strategies.layouts import check_micro_batches, mesh_of

    model, step = trace_job(job)
    step = with_variables(model, step)
    replicas = job["replicas"]
    mesh = None if step.distribution is None else mesh_of(step.distribution)
    if mesh is not None and math.prod(mesh.values()) != replicas:
        raise InputError(
            "prove takes as many replicas as the program's mesh has devices. "
            f"Received: replicas={replicas}, and a mesh {mesh}; give "
            f"replicas={math.prod(mesh.values())}"
        )
    setting = counting.setting_of(step, job, job["shard"], replicas)
    parts = int(setting.micro_batches)
    layouts: Any = setting.layouts
    if layouts is not None:
        check_micro_batches(layouts, parts)
    require_rows(parts, step.rows)
    tell = functools.partial(tracing_process.tell, job)
    written = []
    for worker in range(setting.num_workers):
        of = f" of worker {worker}" if setting.num_workers > 1 else ""
        tell(f"writing the step{of} for GPUs …")
        written.append(WrittenStep(step, setting, worker, True))
    has_kernels = kernels.has_kernels("MatMul", "GPU")
    paths = dict(layers_in(model))
    report: dict[str, Any] = {
        "model": model.name,
        "parameters": num_parameters(model),
        "global_batch_size": setting.rows,
        "workers": setting.num_workers,
        "mesh": mesh,
        "layouts": step.layouts,
        "kernels": None,
    }
    if has_kernels:
        tell("looking for kernels of GPUs …")
        placements = [place(one, one.devices) for one in written]
        report["kernels"] = _kernels(placements, paths)
    tell("checking the order of collectives …")
    order = check_order(written)
    report["order"] = {
        "collectives": order.num_collectives,
        "longest_chain": order.longest,
        "faults": order.faults,
    }
    xla = compile_ahead(written, paths, job, tell)
    report["xla"] = None if xla is None else xla.report()
    report["memory"] = None
    if job["usable"] is not None:
        tell("counting bytes …")
        temporary = {} if xla is None else xla.temporary
        (report["memory"],) = counting.settings(
            step, setting, [parts], temporary=temporary
        )
    return report


def _kernels(
    placements: Iterable[Any], paths: Collection[str]
) -> dict[str, Any]:
    """Joins what is found on all workers; bytes are those of the first one."""
    from kerasmgpu.prove.called_functions import layer_named

    first, *others = placements
    moved = collections.Counter[tuple[str, str]]()
    for (name, kind, types), number in first.moved.items():
        moved[kind, f"{layer_named(name, paths)} ({types})"] += number
    copied = collections.Counter[str]()
    for name, number in first.copied.items():
        copied[layer_named(name, paths)] += number
    faults = [fault for one in (first, *others) for fault in one.faults]
    return {
        "on_gpus": first.on_gpus,
        "on_host": first.on_host,
        "moved": [
            {"operation": kind, "where": where, "times": number}
            for (kind, where), number in moved.most_common()
        ],
        "copies": first.num_copies,
        "copied_bytes": sum(copied.values()),
        "copied": dict(copied.most_common()),
        "faults": list(dict.fromkeys(faults)),
    }


if __name__ == "__main__":
    child_processes.do_job(user_errors.naming_the_function(main))
