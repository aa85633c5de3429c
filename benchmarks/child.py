"""One run, as the process `python -m benchmarks.child FOLDER`.

Reads `FOLDER/job.json`, writes `FOLDER/result.json`.
"""

import importlib

from benchmarks.contenders import CONTENDERS
from kerasmgpu.commands import child_processes


def main(job):
    """Runs the job's training; returns the result."""
    # Imports the contender's framework, configured by the environment.
    trainer = importlib.import_module(
        f"benchmarks.{CONTENDERS[job['contender']].trainer}"
    )
    return trainer.train(job)


if __name__ == "__main__":
    child_processes.do_job(main)
