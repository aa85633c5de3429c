"""The `Progress` callback: a line per epoch with its logs and the speed."""

import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table

from kerasmgpu import replica_arithmetic
from kerasmgpu._keras import fit, xla_choice
from kerasmgpu.callbacks import measurement
from kerasmgpu.callbacks.measurement import MeasuringCallback
from kerasmgpu.callbacks.throughput import rate_of_one_replica
from kerasmgpu.errors import InputError, checked_arguments, shown
from kerasmgpu.job import workers

_REFRESHES_PER_SECOND = 2
_FEW_EPOCHS = 20  # Each of them gets a line.
_SHOWN_ANYWAY = ("learning_rate", "lr")  # Logs of Keras's callbacks.
_SECONDS_BETWEEN_LINES = 10.0  # If there are more epochs than these.


class Progress(MeasuringCallback):
    """Prints a line per epoch: loss, metrics, speed, wait for input, time left.

    ```
    epoch 3/10: loss 0.3123, accuracy 0.8912, validation loss 0.3541,
    validation accuracy 0.8764, 12,345 examples/s (6,172 per replica, 93 %
    efficient), 2 % waiting for input, learning rate 0.001, 1:15 left
    ```

    In a terminal a line with a bar is updated twice a second while an epoch
    runs, unless Keras prints its own bar (`verbose=1`). A thread updates it;
    no step waits for it. In a file, a pipe or a notebook there is one plain
    line per epoch. Where Keras prints a line per epoch, this one follows it, without
    the loss and the metrics.
    With several workers the first one prints. If there are more than 20 epochs,
    the first and the last get a line, and at most one every ten seconds does.

    The figures are those of `ThroughputLogger`, without compilation and
    validation. On GPUs the line has the peak of allocated memory, over this
    worker's replicas; where FLOPs and the device's peak are known, it has the
    MFU, and where XLA was found to be faster, "XLA". The time left assumes that
    each remaining epoch takes as long as the last one with its validation.
    While an epoch runs, the figures are those of the last five seconds and of
    this worker's input.

    Args:
        one_replica: Float, examples per second of one replica, for the
            efficiency. Or string or path-like, a run on one replica: the
            `path` of its `ThroughputLogger`, or its folder, with a
            `throughput.jsonl` or `history.jsonl`. Defaults to `None`: no
            efficiency is printed.
        logs: Dictionary from names in Keras's logs to labels: figures that the
            line begins with, such as `{"val_loss": "validation loss"}`. Those
            that an epoch lacks are left out. Defaults to `None`: all logs, if
            Keras doesn't print them.
        with_keras: Boolean, whether to print a line also where Keras prints
            its own. Defaults to `True`.

    Raises:
        InputError: If `one_replica` can't be read, or is a run on several
            replicas.

    Example:

    ```python
    progress = kerasmgpu.callbacks.Progress()
    model.fit(dataset, epochs=5, verbose=0, callbacks=[progress])
    ```
    """

    @checked_arguments
    def __init__(
        self,
        one_replica: float | str | os.PathLike[str] | None = None,
        logs: Mapping[str, str] | None = None,
        with_keras: bool = True,
    ) -> None:
        super().__init__()
        self._with_keras = with_keras
        self._one_replica = None
        if one_replica is not None:
            self._one_replica = rate_of_one_replica(one_replica)
        if logs is not None and not (
            isinstance(logs, Mapping)
            and all(
                isinstance(one, str) for pair in logs.items() for one in pair
            )
        ):
            raise InputError(
                "logs must be a dictionary from names of logs to labels, such as "
                f"{{'val_loss': 'held-out loss'}}. Received: logs={shown(logs)}"
            )
        self._labels = None if logs is None else dict(logs)
        self._live: Live | None = None
        self._waiting: str | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self._prints = workers.is_first(self.measurement.strategy)
        verbose = self.params.get("verbose")
        self._console = Console()
        self._keras_prints = bool(verbose)
        if self._keras_prints and not self._with_keras:
            self._prints = False
        self._epoch = 0
        self._pace = _Pace(self.params["steps"])
        self._learning_rate = measurement.learning_rate(self.model)
        self.measurement.at_end.callback(self._close)
        if self._prints and self._console.is_terminal and verbose in (0, 2):
            self._live = Live(
                get_renderable=self._view,
                console=self._console,
                refresh_per_second=_REFRESHES_PER_SECOND,
                transient=True,
            )
            self._live.start()

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        super().on_epoch_begin(epoch, logs)
        self._print_waiting()
        self._epoch, self._pace.begin = epoch, time.perf_counter()
        self._learning_rate = measurement.learning_rate(self.model)

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        shared, end = self.measurement, time.perf_counter()
        figures = shared.finish_epoch()
        self._learning_rate = measurement.learning_rate(self.model)
        pace, epochs_left = self._pace, self.params["epochs"] - epoch - 1
        pace.num_steps = pace.skipped() + len(shared.batches)
        seconds: float | None = end - pace.begin
        if pace.epoch_seconds is None:
            # Without compilation, and with the steps before a resume.
            rate, seconds = figures["steps_per_second"], None
            if rate > 0:
                seconds = pace.num_steps / rate + end - shared.steps_end
        pace.epoch_seconds = seconds
        if not self._prints or not self._is_due(end, epochs_left):
            return
        left = None if seconds is None else epochs_left * seconds or None
        shown = self._shown(logs or {}, figures)
        text = self._text({**figures, "seconds_left": left}, shown)
        self._waiting = f"{self._title()}: {text}"
        if not self._keras_prints:
            self._print_waiting()

    def _shown(
        self, logs: Mapping[str, Any], figures: Mapping[str, Any]
    ) -> dict[str, float]:
        """Returns the logs that the line begins with, by their labels."""
        labels = self._labels
        if labels is None:
            names = [] if self._keras_prints else logs
            labels = {
                name: re.sub("^val_", "validation ", name)
                for name in names
                if name not in figures and name not in _SHOWN_ANYWAY
            }
        return {
            label: number
            for name, label in labels.items()
            for number in [_number(logs.get(name))]
            if number is not None
        }

    def _is_due(self, now: float, epochs_left: int) -> bool:
        """Whether an epoch gets a line; if so, sets the time of the next."""
        if self.params["epochs"] > _FEW_EPOCHS and epochs_left:
            if now < self._pace.due:
                return False
        self._pace.due = now + _SECONDS_BETWEEN_LINES
        return True

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._print_waiting()

    def _title(self) -> str:
        return f"epoch {self._epoch + 1}/{self.params['epochs']}"

    def _text(
        self, figures: dict[str, Any], logs: Mapping[str, float] | None = None
    ) -> str:
        shared, rate = self.measurement, figures["examples_per_second"]
        more: dict[str, Any] = {"learning_rate": self._learning_rate}
        if rate and self._one_replica:
            more["efficiency"] = replica_arithmetic.efficiency(
                rate / self._one_replica, shared.num_replicas
            )
        memory = [
            each["peak"] for each in measurement.gpu_memory(shared.strategy)
        ]
        more["memory_bytes"] = max(memory, default=None)
        more["xla"] = 1 if xla_choice.choice(self.model) else None
        figures = {**figures, **more}
        return epoch_text(figures, shared.num_replicas, logs)

    def _view(self) -> Table:
        """Returns the line of the running epoch; rich's thread calls it."""
        # The last execution of an epoch may ask for more than there is.
        steps = self._pace.num_steps
        done = self._pace.skipped() + self.measurement.stopwatch.steps
        done = min(done, steps or done)
        latest = self.measurement.latest()
        figures: dict[str, Any] = {"examples_per_second": None}
        if latest is not None:
            rate, pace, share = latest
            figures = {"examples_per_second": rate, "input_wait_share": share}
            if steps is not None:
                left = self._seconds_left(pace, done, steps)
                figures["seconds_left"] = left
        whole = Column(no_wrap=True)
        table = Table.grid(whole, Column(no_wrap=True), "", padding=(0, 1))
        bar = ProgressBar(steps, done, width=20)
        text = f"{done}/{steps or '?'} {self._text(figures)}"
        table.add_row(self._title(), bar, text)
        return table

    def _seconds_left(self, pace: float, done: int, steps: int) -> float:
        epochs_left = self.params["epochs"] - self._epoch - 1
        seconds = self._pace.epoch_seconds
        if seconds is None:
            return pace * (steps * (1 + epochs_left) - done)
        this = self._pace.begin + seconds - time.perf_counter()
        return max(this, pace * (steps - done)) + epochs_left * seconds

    def _print_waiting(self) -> None:
        line, self._waiting = self._waiting, None
        if line is None:
            return
        if self._console.is_terminal:
            self._console.print(line, soft_wrap=True)
        else:
            print(line, file=sys.stdout, flush=True)

    def _close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        self._print_waiting()


class _Pace:
    """The times of a `fit`: an object, which no checkpoint keeps.

    Attributes:
        num_steps: Integer, steps of an epoch; `None` if unknown.
        begin: Float, `time.perf_counter` when the epoch began.
        epoch_seconds: Float, seconds of the last epoch, with its validation;
            `None` until an epoch has been measured.
        due: Float, `time.perf_counter` from which on a line is due.
    """

    def __init__(self, num_steps: int | None) -> None:
        self.num_steps = num_steps
        self.begin = time.perf_counter()
        self.epoch_seconds: float | None = None
        self.due = -math.inf
        self._fit = fit.innermost()

    def skipped(self) -> int:
        """Returns the epoch's steps that were done before a resume."""
        return 0 if self._fit is None else self._fit.skipped


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None


def epoch_text(
    figures: Mapping[str, float | None],
    num_replicas: int = 1,
    logs: Mapping[str, float] | None = None,
) -> str:
    """Returns figures of an epoch as text; leaves out `None` and NaN.

    Args:
        figures: Mapping with any of `examples_per_second` (of all replicas;
            without it, the text has "no step measured yet"), `efficiency`
            (share of `num_replicas` times the rate of one replica),
            `input_wait_share`, `mfu` (0 to 1), `learning_rate`,
            `memory_bytes` (peak of a replica's allocated memory), `xla` (1 if
            XLA was chosen) and `seconds_left` (until the end of the `fit`).
        num_replicas: Integer, replicas of the `fit`.
        logs: Mapping of labels to floats, shown first. Default: none.

    Example:

    >>> epoch_text({"examples_per_second": 1234.0, "seconds_left": 75}, 2)
    '1,234 examples/s (617 per replica), 1:15 left'
    """
    known = {
        name: value
        for name, value in figures.items()
        if value is not None and not math.isnan(value)
    }
    parts = [
        f"{label} {short(value, 4)}" for label, value in (logs or {}).items()
    ]
    rate = known.get("examples_per_second")
    details = []
    if rate is not None and num_replicas > 1:
        details.append(f"{short(rate / num_replicas)} per replica")
    if "efficiency" in known:
        details.append(f"{known['efficiency']:.0%} efficient")
    parts.append(
        "no step measured yet"
        if rate is None
        else f"{short(rate)} examples/s"
        + f" ({', '.join(details)})" * bool(details)
    )
    forms: dict[str, Callable[[float], str]] = {
        "input_wait_share": "{:.0%} waiting for input".format,
        "mfu": "{:.1%} MFU".format,
        "learning_rate": "learning rate {:.4g}".format,
        "memory_bytes": lambda size: f"{size / 1e9:.2f} GB per replica",
        "xla": lambda _: "XLA",
        "seconds_left": lambda seconds: f"{_duration(seconds)} left",
    }
    parts += [
        form(known[name]) for name, form in forms.items() if name in known
    ]
    return ", ".join(parts).replace("%", " %")


def short(value: float, digits: int = 3) -> str:
    """Formats a number with `digits` digits; a large one without decimals.

    Example:

    >>> short(0.012345), short(12345.6)
    ('0.0123', '12,346')
    """
    is_large = abs(value) >= 10 ** (digits - 1)
    return f"{value:,.0f}" if is_large else f"{value:.{digits}g}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
    )
