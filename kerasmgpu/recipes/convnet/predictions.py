"""Predictions of a trained or restored model, as a file."""

import os
import pathlib
import zipfile
from typing import Any

from kerasmgpu.atomic_files import atomic_write
from kerasmgpu.errors import InputError


def require_new(name: str) -> None:
    """Refuses an unusable path before the training."""
    path = pathlib.Path(name)
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
            "folder that exists and that you may write"
        )


def restore(model: Any, folder: str) -> None:
    """Loads the weights of an earlier run's model."""
    path = pathlib.Path(folder) / "model.keras"
    if not path.is_file():
        raise InputError(
            f"--restore needs the folder of a run that has ended. Received: "
            f"{folder}, which has no model.keras"
        )
    if not zipfile.is_zipfile(path):
        raise InputError(
            f"--restore: {path} is damaged, or no Keras model; train it anew"
        )
    try:
        model.load_weights(path)
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise InputError(
            f"--restore: {path} is damaged, or not of this model: {error}"
        ) from error


def write(outputs: Any, name: str) -> None:
    """Writes an array as `.npy`, or as `.csv` with a line per row."""
    import numpy as np

    if not isinstance(outputs, np.ndarray):
        raise InputError(
            "--predictions takes models with one output. Received: "
            f"{len(outputs)} outputs"
        )
    path = pathlib.Path(name)
    with atomic_write(path) as temporary, open(temporary, "wb") as file:
        if path.suffix == ".npy":
            np.save(file, outputs)
        else:
            rows = outputs.reshape(len(outputs), -1)
            # Enough digits to read the same float32 back.
            np.savetxt(file, rows, fmt="%.9g", delimiter=",")
