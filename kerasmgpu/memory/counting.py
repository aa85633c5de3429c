"""Counts bytes, as the process `python -m kerasmgpu.memory.counting FOLDER`.

It is a child process, so that no parent imports TensorFlow.
"""

import sys
import traceback
from typing import Any

from kerasmgpu.commands import child_processes, user_errors
from kerasmgpu.errors import InputError


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Traces the model of a job, and counts bytes.

    Args:
        job: Dictionary, as `memory_prediction.run` makes it.

    Raises:
        InputError: Instead of any exception of the user's program.
    """
    sys.path[:] = job["sys_path"]
    try:
        return _counted(job)
    except InputError:
        raise
    except Exception as error:
        traceback.print_exc()
        line = user_errors.in_one_line(error)
        raise InputError(f"{job['build']} raised {line}") from error


def _counted(job: dict[str, Any]) -> dict[str, Any]:
    # Imported here, so that errors name the user's function.
    import kerasmgpu
    from kerasmgpu.commands import references, user_models
    from kerasmgpu.engine import devices
    from kerasmgpu.memory.traced_step import trace_step

    # The program of two replicas tells which tensors are divided by rows;
    # bytes for any other number of replicas follow from it.
    devices.make_logical_cpus(2)
    strategy = kerasmgpu.MirroredStrategy(["CPU:0", "CPU:1"])
    module, name = references.load(job["build"])
    with strategy.scope():
        model, data = user_models.build(references.function_of(module, name))
        if data is None or job["data"] is not None:
            data = user_models.data_of(module, job["build"], job["data"])
        step = trace_step(model, data, job["global_batch_size"])
    rows = [
        row
        for shard in job["shard"]
        for num_replicas in job["replicas"]
        for row in _rows(step, job, num_replicas, shard)
    ]
    return {
        "model": model.name,
        "parameters": model.count_params(),
        "global_batch_size": step.rows,
        "jit_compile": step.jit_compile,
        "rows": rows,
    }


def _rows(
    step: Any, job: dict[str, Any], num_replicas: int, shard: str
) -> list[dict[str, Any]]:
    """A row for each number of micro-batches; the first that fits by default."""
    from kerasmgpu.memory.state_bytes import state_bytes
    from kerasmgpu.memory.step_memory import step_peak

    def row(micro_batches: int) -> dict[str, Any]:
        state = state_bytes(step.variables, shard, num_replicas)
        peak = step_peak(step, num_replicas, shard, micro_batches)
        total = state.total + state.gathered + peak.total
        return {
            "replicas": num_replicas,
            "shard": shard,
            "micro_batches": micro_batches,
            "weights": state.weights,
            "gathered": state.gathered,
            "slots": state.slots,
            "gradients": peak.gradients,
            "activations": peak.activations,
            "workspace": peak.workspace + peak.constants + state.other,
            "batch": peak.batch,
            "total": total,
            "fits": None if job["usable"] is None else total <= job["usable"],
            "assumed": peak.assumed,
        }

    if job["micro_batches"] is not None:
        return [row(number) for number in job["micro_batches"]]
    best, number, most = row(1), 2, -(-step.rows // num_replicas)
    while best["fits"] is False and number // 2 < most:
        other = row(min(number, most))
        if other["fits"] or other["total"] < best["total"]:
            best = other
        number *= 2
    return [best]


if __name__ == "__main__":
    child_processes.do_job(main)
