"""Counts a step on the mesh that a program of `keras.distribution` sets.

It is a child process, `python -m kerasmgpu.plan.mesh_counting FOLDER`.
"""

import math
from typing import Any

from kerasmgpu.commands import child_processes, user_errors
from kerasmgpu.errors import InputError


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Plans and lowers the step for the mesh, without its devices.

    Args:
        job: Dictionary, see `commands.traced_step.trace_job`; and
            `"replicas_per_machine"`.

    Returns:
        Dictionary of `axes`, dictionaries of `mesh_time.MeshAxis`, and
        `compute_share`, FLOPs of a device by those of one device alone.
    """
    # Imported here, so that no parent imports TensorFlow.
    from kerasmgpu._keras.made_variables import described
    from kerasmgpu.commands.traced_step import trace_job
    from kerasmgpu.strategies.divisible_variables import DivisibleVariables
    from kerasmgpu.strategies.imagined_steps import ImaginedSteps
    from kerasmgpu.strategies.layouts import Layouts

    model, step = trace_job(job)
    distribution: Any = step.distribution
    num_devices = distribution.device_mesh.devices.size
    num_machines = -(-num_devices // job["replicas_per_machine"])
    layouts = Layouts(distribution)
    layouts.check_workers(num_machines)
    names = layouts.axis_names
    if not names:  # One axis: its name, or those of the joined ones.
        large = [name for name, size in layouts.mesh.items() if size > 1]
        names = (" and ".join(large),)
    axes = {n: size for n, size in zip(names, layouts.axes) if size > 1}
    variables = DivisibleVariables(model)
    whole = (None,) * len(axes)
    layout = tuple(
        layouts.axes_to_shard(described(variable)) or whole
        for variable in variables.variables
    )
    rows_name = names[0] if layouts.divides_rows else ""
    slowness = dict.fromkeys(axes, 1.0)
    steps = ImaginedSteps(
        step.program, variables, axes, rows_name, step.rows, slowness
    )
    cost = steps.cost(layout)
    if not cost.share:
        raise InputError(
            "the step has no product whose FLOPs are counted, so its time on "
            "the mesh can't be predicted. kerasmgpu flops lists what is counted"
        )
    sent, rings = steps.sent(layout), steps.rings(layout)
    return {
        "compute_share": cost.flops / (cost.share * math.prod(axes.values())),
        "axes": [
            {
                "name": name,
                "size": size,
                "sent_bytes": sent[name],
                "rings": rings[name],
                "divides_rows": name == rows_name,
            }
            for name, size in axes.items()
        ],
    }


if __name__ == "__main__":
    child_processes.do_job(user_errors.naming_the_function(main))
