"""A callback that keeps the records of a run's epochs."""

import math
import time
import types

import keras

from kerasmgpu.errors import InputError


class EpochRecords(keras.callbacks.Callback):
    """Records each epoch's logs; a run that goes on has all records.

    Put it behind callbacks that add figures to the logs. Records are plain
    data, which `kerasmgpu.callbacks.Checkpoint` saves and puts back.

    The seconds of an epoch are those of its training steps: validation is left
    out, and so is the first step after the start of the process, in which the
    step is traced.

    Args:
        run_folder: `RunFolder` for `history.jsonl`.
        report: Function of the record, called after each epoch. Defaults to
            `None`.

    Attributes:
        history: List of records, which have `"epoch"` (from 1), `"seconds"`
            and the logs; `None` stands for what is no finite number.

    Raises:
        InputError: After an epoch whose loss is not finite. It is raised before
            such a state would be saved.
    """

    # Its hook for batches only looks at the clock.
    reads_batch_logs = False

    def __init__(self, run_folder, report=None):
        super().__init__()
        self.run_folder = run_folder
        self.report = report
        self.history = []
        self.seconds = 0.0

    def on_train_begin(self, logs=None):
        # No plain data: the clock of another process says nothing here.
        self._clock = types.SimpleNamespace(traced=False, since=None)

    def on_epoch_begin(self, epoch, logs=None):
        self.seconds = 0.0
        self._clock.since = time.perf_counter() if self._clock.traced else None

    def on_train_batch_end(self, batch, logs=None):
        self._lap()
        self._clock.traced = True

    def on_test_begin(self, logs=None):
        self._lap(last=True)

    def on_epoch_end(self, epoch, logs=None):
        self._lap(last=True)
        figures = {name: _number(value) for name, value in (logs or {}).items()}
        if figures["loss"] is None:
            raise InputError(
                f"The loss is no longer finite after epoch {epoch + 1}; lower "
                "the learning rate or warm it up for longer"
            )
        record = {"epoch": epoch + 1, "seconds": self.seconds, **figures}
        self.history.append(record)
        self.run_folder.write_history(self.history)
        if self.report is not None:
            self.report(record)

    def _lap(self, last=False):
        now = time.perf_counter()
        if self._clock.since is not None:
            self.seconds += now - self._clock.since
        self._clock.since = None if last else now


def _number(value):
    """A float, or `None` for NaN and infinity, which JSON doesn't have."""
    value = float(value)
    return value if math.isfinite(value) else None
