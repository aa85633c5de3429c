"""A callback that records a run's epochs."""

import json
import math
from collections.abc import Callable
from typing import Any

import keras

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared.run_folder import RunFolder


class EpochRecords(keras.callbacks.Callback):
    """Records each epoch's logs in `history` and in `history.jsonl`.

    `kerasmgpu.callbacks.Checkpoint` saves and restores `history`: a resumed
    run has all records. A record has `"epoch"` (from 1), `"seconds"` (of the
    epoch's steps at the rate that `ThroughputLogger` measured, without tracing
    and validation) and the logs; `None` stands for NaN and infinity.

    Args:
        folder: `RunFolder` for `history.jsonl`.
        steps_per_epoch: Integer.
        report: Function of the record, called after each epoch, or `None`.
    """

    def __init__(
        self,
        folder: RunFolder,
        steps_per_epoch: int,
        report: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        super().__init__()
        self._folder = folder
        self._steps_per_epoch = steps_per_epoch
        self._report = report
        self.history: list[dict[str, Any]] = []

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        figures = {
            name: float(value) if math.isfinite(value) else None
            for name, value in (logs or {}).items()
        }
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
