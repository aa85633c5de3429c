"""Compiles for a number of replicas, `python -m kerasmgpu.compile.child FOLDER`."""

import os
from typing import Any

from kerasmgpu.commands import child_processes, user_errors
from kerasmgpu.job.cluster import SEPARATE_VARIABLE


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Compiles the steps of a job, in as many workers as it has."""
    # Imported here, so that errors name the user's function.
    from kerasmgpu.compile import one_step

    if job["workers"] == 1:
        return one_step.compile_steps(job)
    from kerasmgpu.launch.notebook import notebook_launch

    del os.environ[SEPARATE_VARIABLE]  # These are workers of one job.
    first, *_ = notebook_launch(
        one_step.compile_steps,
        (job,),
        num_workers=job["workers"],
        devices_per_worker=job["replicas"],
    )
    return first


if __name__ == "__main__":
    child_processes.do_job(user_errors.naming_the_function(main))
