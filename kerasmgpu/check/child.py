"""One process of a check, `python -m kerasmgpu.check.child FOLDER`."""

import faulthandler
import pathlib
import traceback
from typing import Any

from kerasmgpu.check.stage_record import StageRecord
from kerasmgpu.commands import child_processes, search_path
from kerasmgpu.commands.command_line import leave_job

_PART_OF_TIME = 0.95
"""Share of the time-out after which the stacks of threads are logged."""


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Runs the stages of a job; errors are in the file of its stages."""
    record = StageRecord(pathlib.Path(job["folder"]))
    # The log then shows where a crash or a time-out has found it.
    faulthandler.enable()
    faulthandler.dump_traceback_later(_PART_OF_TIME * job["timeout_seconds"])
    search_path.enter(job["search_path"])
    try:
        record.enter("TensorFlow starts")
        from kerasmgpu.check import stages

        stages.run(job, record)
    except Exception as error:
        traceback.print_exc()
        record.end(error)
        leave_job(f"{type(error).__name__}: {error}")
    record.end()
    return {}


if __name__ == "__main__":
    child_processes.do_job(main)
