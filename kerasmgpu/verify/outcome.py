"""What a run leaves in its folder, and how it is read again."""

import dataclasses
import json
import pathlib

import numpy as np


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run of the user's program.

    Args:
        folder: `pathlib.Path` of the run.
        facts: Dictionary, as `training.train` describes it.
    """

    folder: pathlib.Path
    facts: dict

    @classmethod
    def load(cls, folder):
        """Reads the outcome that a run left in `folder`."""
        folder = pathlib.Path(folder)
        facts = json.loads((folder / "facts.json").read_text("utf-8"))
        return cls(folder, facts)

    def start(self):
        """Variables before the first step, in the model's order."""
        return load_arrays(self.folder / "start.npz")

    def weights(self, step):
        """Variables after a step (counted from 1), in the model's order."""
        return load_arrays(self.folder / f"step-{step}.npz")

    def predictions(self):
        """Leaves of what `predict` returned after training."""
        return load_arrays(self.folder / "predictions.npz")

    def layer_outputs(self):
        """Leaves of each layer's output in the first step, by layer."""
        arrays = load_arrays(self.folder / "outputs.npz")
        outputs = {}
        for name, array in zip(self.facts["output_layers"], arrays):
            outputs.setdefault(name, []).append(array)
        return outputs


def save_arrays(path, arrays):
    """Writes a list of arrays to an `.npz` file."""
    named = {f"{index:06d}": array for index, array in enumerate(arrays)}
    np.savez(path, **named)


def load_arrays(path):
    """Reads the list of arrays that `save_arrays` wrote."""
    with np.load(path) as file:
        return [file[name] for name in sorted(file.files)]
