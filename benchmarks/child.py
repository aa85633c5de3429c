"""One run, as the process `python -m benchmarks.child FOLDER`.

`FOLDER/job.json` says what to do; `FOLDER/result.json` is what came of it.
"""

import importlib

from benchmarks.contenders import CONTENDERS
from kerasmgpu.commands import child_module


def main(job):
    """Trains as the job says; returns the result."""
    # What it trains with is imported here, and starts by the environment.
    trainer = importlib.import_module(
        f"benchmarks.{CONTENDERS[job['contender']].trainer}"
    )
    return trainer.train(job)


if __name__ == "__main__":
    child_module.do_job(main)
