"""Takes a snapshot of the whole state of a `fit`, at the end of a step.

| state                              | read and restored by                   |
|------------------------------------|----------------------------------------|
| weights, seeds, optimizers         | `_keras/training_state.py`             |
| metrics of the running epoch       | the same, if the epoch has begun       |
| RNG state, now and at the start of | `_keras/random_state.py`               |
| the epoch                          |                                        |
| position in the data               | batch counts; `_keras/fit.py` skips.   |
|                                    | Of `grain`: `_keras/grain_states.py`   |
| other callbacks, with the history  | `callback_states.py`                   |
| whether XLA was found to be faster | `_keras/xla_choice.py`                 |
| settings, only to be compared      | `_keras/run_settings.py`               |
"""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu._keras import training_state
from kerasmgpu.callbacks.checkpoints import plain_data
from kerasmgpu.job import workers


@dataclasses.dataclass
class Progress:
    """Everything in a checkpoint but variables, as plain data.

    `step` is the number of finished steps of the running epoch, 0 between
    epochs. `epoch`, from 0, is the running epoch; between epochs, the next one.
    """

    epoch: int
    step: int
    first_epoch: int
    num_batches: int | None
    stop_training: bool
    callbacks: list[dict[str, Any]]
    random: dict[str, Any]
    random_at_epoch_start: dict[str, Any] | None
    best: float | None
    best_file: str | None
    steps_per_epoch: int | None = None
    uses_xla: bool | None = None
    settings: dict[str, Any] | None = None
    data: dict[str, Any] | None = None


@dataclasses.dataclass
class Snapshot:
    """A copy of a model's state in host memory.

    Attributes:
        manifest: Dictionary; see `file_format.write`.
        pieces: List of `training_state.Piece`s.
        extra: List of the NumPy arrays that are no variables.
        is_sharded: Boolean, whether each worker has its own pieces.
    """

    manifest: dict[str, Any]
    pieces: list[training_state.Piece]
    extra: list[Any]
    is_sharded: bool


def take(
    model: keras.Model,
    progress: Progress,
    is_sharded: bool,
    weights: dict[str, Any],
    copies: bool = True,
) -> Snapshot:
    """Copies a model's state; collective under several workers.

    Args:
        is_sharded: Boolean, whether each worker copies its parts of sharded
            variables. Otherwise the first worker copies all variables, and the
            others none.
    """
    strategy = model.distribute_strategy
    variables, pieces = training_state.read(
        model,
        progress.step > 0,
        all_workers=workers.count(strategy) > 1,
        keeps=workers.is_first(strategy),
        sharded=is_sharded,
        copies=copies,
    )
    extra = []
    fields = dataclasses.fields(progress)
    content = {field.name: getattr(progress, field.name) for field in fields}
    manifest = {
        "keras": keras.version(),
        "tensorflow": tf.version.VERSION,
        **variables,
        "weights": weights,
        "progress": plain_data.encode(content, extra),
    }
    return Snapshot(manifest, pieces, extra, is_sharded)
