"""One run, as the process `python -m benchmarks.child FOLDER`.

`FOLDER/job.json` says what to do; `FOLDER/result.json` is what came of it.
"""

import importlib
import json
import os

from benchmarks.contenders import CONTENDERS
from kerasmgpu.commands import child_module


def main(folder):
    """Trains as the job in `folder` says, and leaves the result there."""
    job = json.loads((folder / "job.json").read_text("utf-8"))
    # What it trains with is imported here, and starts by the environment.
    trainer = importlib.import_module(
        f"benchmarks.{CONTENDERS[job['contender']].trainer}"
    )
    result = trainer.train(job)
    unfinished = folder / "result.json.new"
    unfinished.write_text(json.dumps(result), encoding="utf-8")
    os.replace(unfinished, folder / "result.json")


if __name__ == "__main__":
    child_module.run_child(main)
