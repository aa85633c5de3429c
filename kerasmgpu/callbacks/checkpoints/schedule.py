"""When to save: by steps, by the clock, at the end of epochs, at the best."""

from kerasmgpu.errors import InputError


class Schedule:
    """Says whether a checkpoint is due. The time is an argument.

    Args:
        every_steps: Integer, or `None`.
        every_seconds: Number of seconds, or `None`. With neither, the end of
            every epoch is due.
    """

    def __init__(self, every_steps=None, every_seconds=None):
        self.every_steps = every_steps
        self.every_seconds = every_seconds
        self.every_epoch = every_steps is None and every_seconds is None
        self._steps = self._step_before = 0
        self._saved = None

    def start_epoch(self, step):
        """An epoch begins, after `step` of its steps."""
        self._step_before = step

    def count(self, step):
        """`step` steps of the epoch are done."""
        self._steps += step - self._step_before
        self._step_before = step

    def saved(self, seconds):
        """A checkpoint was saved, or training began, at this time."""
        self._steps, self._saved = 0, seconds

    def steps_are_due(self):
        """Whether enough steps are done; the same on all workers."""
        return bool(self.every_steps) and self._steps >= self.every_steps

    def seconds_are_due(self, seconds):
        """Whether enough time has passed, by this worker's clock."""
        if not self.every_seconds:
            return False
        return seconds - self._saved >= self.every_seconds


class Best:
    """The best value of a log so far.

    Args:
        name: String, name of the log, or `None`: there is no best.
        mode: `"min"` or `"max"`.
    """

    def __init__(self, name, mode):
        self.name = name
        self.value = None
        self.file = None
        self._sign = 1 if mode == "min" else -1

    def update(self, logs):
        """Notes an epoch's logs; returns whether it is the best so far.

        Raises:
            InputError: If the log isn't among them. Those of a validation may
                be missing, since not every epoch need be validated.
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
