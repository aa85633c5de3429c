"""What a model predicts, as a file in the order of the data."""

import os
import pathlib

from kerasmgpu.atomic_files import atomic_write
from kerasmgpu.errors import InputError


def require_new(path):
    """Refuses, before the training, a path that predictions can't go to."""
    path = pathlib.Path(path)
    if path.suffix not in (".npy", ".csv"):
        raise InputError(
            f"--predictions must end in .npy or .csv. Received: {path}"
        )
    if path.exists():
        raise InputError(
            f"--predictions exists and is not overwritten. Received: {path}"
        )
    if not os.access(path.parent, os.W_OK):
        raise InputError(
            f"--predictions can't be written. Received: {path}; choose a "
            "folder that is there and that you may write"
        )


def write(outputs, path):
    """Writes the rows that `model.predict` returned, whole or not at all.

    `.npy` has the array, `.csv` a line per row.
    """
    import numpy as np

    if not isinstance(outputs, np.ndarray):
        raise InputError(
            "--predictions takes models with one output. Received: "
            f"{len(outputs)} outputs"
        )
    path = pathlib.Path(path)
    with atomic_write(path) as temporary, open(temporary, "wb") as file:
        if path.suffix == ".npy":
            np.save(file, outputs)
        else:
            rows = outputs.reshape(len(outputs), -1)
            # As many digits as bring float32 back.
            np.savetxt(file, rows, fmt="%.9g", delimiter=",")
