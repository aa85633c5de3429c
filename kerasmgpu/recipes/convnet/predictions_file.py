"""What a model predicts, as a file in the order of the data."""

import os
import pathlib

from kerasmgpu.commands.complete_files import complete
from kerasmgpu.errors import InputError


def require_new(path):
    """Refuses a path that can't become a file of predictions.

    Call it before anything is trained.

    Args:
        path: String or path-like, ending in `.npy` or `.csv`.

    Raises:
        InputError: If it ends otherwise, is there, or can't be written.
    """
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
    """Writes predictions, whole or not at all.

    Args:
        outputs: What `model.predict` returned: a NumPy array `[rows, ...]`.
        path: String or path-like, ending in `.npy` (as it is) or `.csv` (a
            line per row).

    Raises:
        InputError: If the model has several outputs.
    """
    import numpy as np

    if not isinstance(outputs, np.ndarray):
        raise InputError(
            "--predictions takes models with one output. Received: "
            f"{len(outputs)} outputs"
        )
    path = pathlib.Path(path)
    with complete(path) as temporary, open(temporary, "wb") as file:
        if path.suffix == ".npy":
            np.save(file, outputs)
        else:
            rows = outputs.reshape(len(outputs), -1)
            # As many digits as bring float32 back.
            np.savetxt(file, rows, fmt="%.9g", delimiter=",")
