"""The whole state of a `fit`, taken at the end of a step and put back.

| what                               | where it is                            |
|------------------------------------|----------------------------------------|
| weights, seeds, optimizers         | `_keras/training_state.py`             |
| metrics of the running epoch       | the same, if steps of it are done      |
| random numbers, now and at the     | `_keras/random_state.py`               |
| start of the epoch                 |                                        |
| position in the data               | counted; `_keras/fit.py` goes there    |
| other callbacks, with the history  | `callback_states.py`                   |
"""

import dataclasses

import keras
import tensorflow as tf

from kerasmgpu._keras import training_state
from kerasmgpu.callbacks.checkpoints import plain_data
from kerasmgpu.job import workers


@dataclasses.dataclass
class Progress:
    """What is saved beside variables; all of it plain data.

    `epoch` counts from 0 and is the next to run, or the one that is running if
    `step`, the number of its steps that are done, is above 0.
    """

    epoch: int
    step: int
    first_epoch: int
    num_batches: object
    stop_training: bool
    callbacks: list
    random: dict
    random_at_epoch_start: object
    best: object
    best_file: object
    steps_per_epoch: object = None


def take(model, progress):
    """Copies a model's state; collective under several workers.

    Args:
        model: Compiled `keras.Model` that is being trained.
        progress: `Progress`.

    Returns:
        `(manifest, arrays)` for `file_format.write`.
    """
    several = workers.count(model.distribute_strategy) > 1
    variables, arrays = training_state.read(model, progress.step > 0, several)
    extra = []
    fields = dataclasses.fields(progress)
    content = {field.name: getattr(progress, field.name) for field in fields}
    manifest = {
        "keras": keras.version(),
        "tensorflow": tf.version.VERSION,
        **variables,
        "progress": plain_data.encode(content, extra),
    }
    return manifest, arrays + extra


def progress_of(manifest, arrays):
    """The `Progress` in a checkpoint."""
    extra = arrays[len(manifest["variables"]) :]
    return Progress(**plain_data.decode(manifest["progress"], extra))


def restore_variables(model, manifest, arrays):
    """Assigns a checkpoint's variables to a model.

    Raises:
        InputError: If it is one of another model.
    """
    first = workers.is_first(model.distribute_strategy)
    training_state.restore(model, manifest, arrays, first)
