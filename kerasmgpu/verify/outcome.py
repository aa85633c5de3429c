"""The result of a run, with its files of arrays."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of one run of the user's program."""

    folder: pathlib.Path
    facts: dict[str, Any]

    def start(self) -> list[np.ndarray]:
        """Returns the variables before the first step, in the model's order."""
        return load_arrays(self.folder / "start.npz")

    def weights(self, step: int) -> list[np.ndarray]:
        """Returns the variables after a step (from 1), in the model's order."""
        return load_arrays(self.folder / f"step-{step}.npz")

    def slots(self, step: int) -> list[np.ndarray]:
        """Returns the optimizers' variables after a step (from 1)."""
        return load_arrays(self.folder / f"slots-{step}.npz")

    def predictions(self) -> list[np.ndarray]:
        """Returns the leaves of the result of `predict` after training."""
        return load_arrays(self.folder / "predictions.npz")

    def layer_outputs(self) -> dict[str, list[np.ndarray]]:
        """Returns a dictionary: layer name to leaves of its first output."""
        arrays = load_arrays(self.folder / "outputs.npz")
        outputs: dict[str, list[np.ndarray]] = {}
        for name, array in zip(self.facts["output_layers"], arrays):
            outputs.setdefault(name, []).append(array)
        return outputs


def save_arrays(path: str | os.PathLike[str], arrays: Iterable[Any]) -> None:
    """Writes a list of arrays to an `.npz` file."""
    named = {f"{index:06d}": array for index, array in enumerate(arrays)}
    np.savez(path, **named)


def load_arrays(path: str | os.PathLike[str]) -> list[np.ndarray]:
    """Reads the list of arrays that `save_arrays` wrote."""
    with np.load(path) as file:
        return [file[name] for name in sorted(file.files)]
