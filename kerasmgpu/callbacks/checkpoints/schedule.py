"""Decides when to save: by steps, seconds, ends of epochs, or the best log."""

from collections.abc import Mapping
from typing import Any

from kerasmgpu.errors import InputError


class Schedule:
    """Decides when a checkpoint is due; the caller passes the time.

    Args:
        every_steps: Integer, or `None`.
        every_seconds: Number of seconds, or `None`. With neither, a
            checkpoint is due at the end of every epoch.
    """

    def __init__(
        self, every_steps: int | None = None, every_seconds: float | None = None
    ) -> None:
        self.every_steps = every_steps
        self.every_seconds = every_seconds
        self.every_epoch = every_steps is None and every_seconds is None
        self._steps = self._step_before = 0
        self._saved = 0.0

    def start_epoch(self, step: int) -> None:
        """Starts an epoch in which `step` steps are already done."""
        self._step_before = step

    def count(self, step: int) -> None:
        """Records that `step` steps of the epoch are done."""
        self._steps += step - self._step_before
        self._step_before = step

    def saved(self, now: float) -> None:
        """Restarts both counts, at a save or the start of training."""
        self._steps, self._saved = 0, now

    def steps_are_due(self) -> bool:
        """Whether `every_steps` were counted since the last `saved`.

        All workers count the same steps.
        """
        return self.every_steps is not None and self._steps >= self.every_steps

    def seconds_are_due(self, now: float) -> bool:
        """Whether `every_seconds` have passed since the last save."""
        if not self.every_seconds:
            return False
        return now - self._saved >= self.every_seconds


class Best:
    """Tracks the best value of a log so far, and the checkpoint that has it.

    Args:
        name: String, name of the log, or `None` to track none.
        mode: `"min"` or `"max"`.

    Attributes:
        value: Float, the best so far; `None` before the first.
        file: String, name of its checkpoint, or `None`; the caller sets it.
    """

    def __init__(self, name: str | None, mode: str) -> None:
        self.name = name
        self.value: float | None = None
        self.file: str | None = None
        self._sign = 1 if mode == "min" else -1

    def update(self, logs: Mapping[str, Any]) -> bool:
        """Records an epoch's logs; returns whether their value is the best yet.

        Raises:
            InputError: If the log is missing, unless it is a validation log:
                `validation_freq` can skip epochs.
        """
        if self.name is None:
            return False
        if self.name not in logs:
            if self.name.startswith("val_"):
                return False
            raise InputError(
                f"best must name a log of fit. Received: best={self.name!r}, "
                f"and the logs are {', '.join(logs)}"
            )
        value = float(logs[self.name])
        if self.value is None or self._sign * value < self._sign * self.value:
            self.value = value
            return True
        return False
