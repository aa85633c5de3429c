"""A callback that keeps a run's records, and its state after every epoch."""

import contextlib
import json
import math
import pathlib
import tempfile
import time

import keras
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.job import workers

_WEIGHTS = "state.weights.h5"
_SEEDS = "seeds.json"


class EpochRecords(keras.callbacks.Callback):
    """Records each epoch's logs and saves what is needed to go on after it.

    Put it behind callbacks that add figures to the logs.

    The seconds of an epoch are those of its training steps: validation and
    checkpoints are left out, and so is the first step after the start of the
    process, in which the step is traced.

    Args:
        run_folder: `RunFolder` that checkpoints go to.
        history: List of the records of epochs that are already done; new
            records are appended. A record has `"epoch"` (from 1), `"seconds"`
            and the logs; `None` stands for what is no finite number.
        report: Function of the record, called after each epoch. Defaults to
            `None`.

    Raises:
        InputError: After an epoch whose loss is not finite; such a state is
            not saved.
    """

    # Its hook for batches only looks at the clock.
    reads_batch_logs = False

    def __init__(self, run_folder, history, report=None):
        super().__init__()
        self.run_folder = run_folder
        self.history = history
        self.report = report
        self._started = None
        self._seconds = None

    def on_train_begin(self, logs=None):
        self._traced = False

    def on_epoch_begin(self, epoch, logs=None):
        self._started = time.perf_counter()
        self._seconds = None

    def on_train_batch_end(self, batch, logs=None):
        if not self._traced:
            self._traced = True
            self._started = time.perf_counter()

    def on_test_begin(self, logs=None):
        self._stop_clock()

    def on_epoch_end(self, epoch, logs=None):
        self._stop_clock()
        figures = {name: _number(value) for name, value in (logs or {}).items()}
        if figures["loss"] is None:
            raise InputError(
                f"The loss is no longer finite after epoch {epoch + 1}; lower "
                "the learning rate or warm it up for longer"
            )
        record = {"epoch": epoch + 1, "seconds": self._seconds, **figures}
        self.history.append(record)
        if self.run_folder.path is not None:
            self.run_folder.save_checkpoint(
                epoch + 1, self.history, self._save_state
            )
        if self.report is not None:
            self.report(record)

    def _save_state(self, folder):
        self.model.save_weights(folder / _WEIGHTS)
        seeds = [seed.numpy().tolist() for seed in _seeds(self.model)]
        (folder / _SEEDS).write_text(json.dumps(seeds), encoding="utf-8")

    def _stop_clock(self):
        if self._seconds is None:
            self._seconds = time.perf_counter() - self._started


def _seeds(model):
    """States of the random layers: `save_weights` leaves them out."""
    weights = {id(variable) for variable in model.weights}
    return [
        variable
        for variable in model.non_trainable_variables
        if id(variable) not in weights
    ]


def _number(value):
    """A float, or `None` for NaN and infinity, which JSON doesn't have."""
    value = float(value)
    return value if math.isfinite(value) else None


def restore(model, run_folder):
    """Puts a compiled model into the state of the last checkpoint.

    Weights, the optimizer's slots, its count of steps (and with it the learning
    rate) and what random layers draw next are restored; without a checkpoint
    nothing changes. Call it in the strategy's scope: it makes the slots. With
    several workers, all get what the first worker's folder has.

    Returns:
        The list of the records of all epochs that are done.
    """
    strategy = tf.distribute.get_strategy()
    folder, history = run_folder.last_checkpoint()
    seeds = folder and run_folder.read_json(f"{folder.name}/{_SEEDS}")
    history, seeds = json.loads(
        workers.broadcast(strategy, json.dumps([history, seeds]).encode())
    )
    if not history:
        return history
    # Slots exist once the optimizer is built; only then can they be set.
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    with _on_every_worker(strategy, folder and folder / _WEIGHTS) as path:
        if folder is None:
            model.load_weights(path)
        else:
            with run_folder.reading(f"{folder.name}/{_WEIGHTS}"):
                model.load_weights(path)
    for variable, seed in zip(_seeds(model), seeds):
        variable.assign(seed)
    if run_folder.path is not None:
        run_folder.write_history(history)
    return history


@contextlib.contextmanager
def _on_every_worker(strategy, path):
    """Context with the path of a copy of the first worker's file."""
    if workers.count(strategy) == 1:
        yield path
        return
    first = workers.is_first(strategy)
    data = workers.broadcast(strategy, path.read_bytes() if first else b"")
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "state.weights.h5"
        copy.write_bytes(data)
        yield copy
