"""Trains the model of `trial_models.JOB` as one of two workers.

python -m kerasmgpu.launch --num_workers=2 -- -m … FOLDER
"""

import json
import pathlib
import sys

import kerasmgpu
from kerasmgpu.doctor.trial import train
from kerasmgpu.doctor.trial_models import JOB_TRIAL
from kerasmgpu.job import workers


def main(folder: pathlib.Path) -> None:
    """Trains; the first worker writes what `trial` reads."""
    strategy = kerasmgpu.strategy()
    index = workers.index(strategy)
    outcome = train(JOB_TRIAL, strategy, folder / str(index))
    if index == 0:
        (folder / "facts.json").write_text(json.dumps(outcome.facts))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
