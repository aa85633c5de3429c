"""One run, as the process `python -m benchmarks.child FOLDER`.

`FOLDER/job.json` says what to do; `FOLDER/result.json` is what came of it.
"""

import importlib
import json

from benchmarks.contenders import CONTENDERS
from kerasmgpu.commands import child_module, output_folder


def main(folder):
    """Trains as the job in `folder` says, and leaves the result there."""
    job = json.loads((folder / "job.json").read_text("utf-8"))
    # What it trains with is imported here, and starts by the environment.
    trainer = importlib.import_module(
        f"benchmarks.{CONTENDERS[job['contender']].trainer}"
    )
    result = trainer.train(job)
    output_folder.write_text(folder / "result.json", json.dumps(result))


if __name__ == "__main__":
    child_module.run_child(main)
