"""A callback that keeps the records of a run's epochs."""

import json
import math

import keras

from kerasmgpu.errors import InputError


class EpochRecords(keras.callbacks.Callback):
    """Records each epoch's logs; a resumed run has all records.

    Records are plain data, which `kerasmgpu.callbacks.Checkpoint` saves and
    restores. Their `"seconds"` are those of the epoch's steps at the rate that
    `ThroughputLogger` measured: tracing and validation are left out.

    Args:
        folder: `RunFolder` for `history.jsonl`.
        steps_per_epoch: Integer.
        report: Function of the record, called after each epoch, or `None`.

    Attributes:
        history: List of records, which have `"epoch"` (from 1), `"seconds"`
            and the logs; `None` stands for what is no finite number.
    """

    def __init__(self, folder, steps_per_epoch, report=None):
        super().__init__()
        self._folder = folder
        self._steps_per_epoch = steps_per_epoch
        self._report = report
        self.history = []

    def on_epoch_end(self, epoch, logs=None):
        figures = {name: _number(value) for name, value in (logs or {}).items()}
        if figures["loss"] is None:
            raise InputError(
                f"The loss is no longer finite after epoch {epoch + 1}; lower "
                "the learning rate or warm it up for longer"
            )
        rate = figures.get("steps_per_second")
        # An epoch whose only step was traced has no rate.
        seconds = self._steps_per_epoch / rate if rate else 0.0
        record = {"epoch": epoch + 1, "seconds": seconds, **figures}
        self.history.append(record)
        if self._folder.path is not None:
            lines = [json.dumps(record) + "\n" for record in self.history]
            self._folder.write("history.jsonl", "".join(lines))
        if self._report is not None:
            self._report(record)


def _number(value):
    """A float, or `None` for NaN and infinity, which JSON doesn't have."""
    value = float(value)
    return value if math.isfinite(value) else None
