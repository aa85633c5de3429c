"""Trains the model of `trial_models.JOB` as one of two workers.

python -m kerasmgpu.launch --num_workers=2 -- -m … FOLDER
"""

import json
import pathlib
import sys

import kerasmgpu
from kerasmgpu.doctor.trial import Trained, configure
from kerasmgpu.doctor.trial_models import JOB_TRIAL
from kerasmgpu.verify.outcome import save_arrays


def main(folder: pathlib.Path) -> None:
    """Trains; the first worker writes what `_OfJob` reads."""
    configure(JOB_TRIAL)
    strategy = kerasmgpu.strategy()
    trained = Trained(JOB_TRIAL, strategy)
    trained.measure()
    if strategy.is_first_worker:
        (folder / "figures.json").write_text(json.dumps(trained.figures))
        save_arrays(folder / "end.npz", trained.end)
        save_arrays(folder / "predictions.npz", [trained.predictions])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
