"""The `Progress` callback: a line per epoch with the speed of all replicas."""

import math
import os
import sys
import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from kerasmgpu import replica_arithmetic
from kerasmgpu.callbacks import measurement
from kerasmgpu.callbacks.measurement import MeasuringCallback
from kerasmgpu.callbacks.progress_line import Line, rate_of_one_replica
from kerasmgpu.job import workers

_REFRESHES_PER_SECOND = 2


class Progress(MeasuringCallback):
    """Prints a line per epoch: speed, efficiency, wait for input, time left.

    ```
    epoch 3/10: 12,345 examples/s (6,172 per replica, 93 % efficient),
    2 % waiting for input, learning rate 0.001, 1:15 left
    ```

    In a terminal a line with a bar is updated twice a second while an epoch
    runs, unless Keras prints its own bar (`verbose=1`). A thread updates it;
    no step waits for it. In a file, a pipe or a notebook there is one plain
    line per epoch. Where Keras prints a line per epoch, this one follows it.
    With several workers the first one prints.

    The figures are those of `ThroughputLogger`, without compilation and
    validation. On GPUs the line has the most memory that a replica of this
    worker had allocated; where FLOPs and the device's peak are known, it has
    the MFU. The time left is that of the epochs left, each as long as the
    last one with its validation. While an epoch runs, the figures are those of
    the last five seconds and of this worker's input.

    Args:
        one_replica: Float, examples per second of one replica, for the
            efficiency. Or string or path-like, a run on one replica: the
            `path` of its `ThroughputLogger`, or its folder, with a
            `throughput.jsonl` or `history.jsonl`. Defaults to `None`: no
            efficiency is printed.

    Raises:
        InputError: If `one_replica` can't be read, or is a run on several
            replicas.

    Example:

    ```python
    progress = kerasmgpu.callbacks.Progress()
    model.fit(dataset, epochs=5, verbose=0, callbacks=[progress])
    ```
    """

    def __init__(
        self, one_replica: float | str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__()
        self._one_replica = None
        if one_replica is not None:
            self._one_replica = rate_of_one_replica(one_replica)
        self._live: Live | None = None
        self._waiting: Line | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self._prints = workers.is_first(self.measurement.strategy)
        verbose = self.params.get("verbose")
        self._console = Console()
        self._is_live = self._console.is_terminal and verbose in (0, 2)
        self._keras_prints = bool(verbose)
        self._num_steps: int | None = self.params["steps"]
        self._epoch_seconds: float | None = None
        self.measurement.at_end.callback(self._close)

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        super().on_epoch_begin(epoch, logs)
        self._print_waiting()
        self._epoch, self._begin = epoch, time.perf_counter()
        self._learning_rate = measurement.learning_rate(self.model)
        if self._prints and self._is_live:
            self._live = Live(
                get_renderable=self._view,
                console=self._console,
                refresh_per_second=_REFRESHES_PER_SECOND,
                transient=True,
            )
            self._live.start()

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._stop_live()
        shared, end = self.measurement, time.perf_counter()
        figures = shared.finish_epoch()
        self._learning_rate = measurement.learning_rate(self.model)
        self._num_steps = len(shared.batches)
        seconds = end - self._begin
        if self._epoch_seconds is None and figures["steps_per_second"] > 0:
            # The first epoch without compilation, but with its validation.
            seconds = self._num_steps / figures["steps_per_second"]
            seconds += end - shared.steps_end
        self._epoch_seconds = seconds
        if not self._prints:
            return
        self._waiting = self._line(
            figures["examples_per_second"],
            figures["input_wait_share"],
            (self.params["epochs"] - epoch - 1) * seconds or None,
            figures.get("mfu"),
        )
        if not self._keras_prints:
            self._print_waiting()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._print_waiting()

    def _line(
        self,
        rate: float | None,
        input_wait_share: float | None,
        seconds_left: float | None,
        mfu: float | None = None,
    ) -> Line:
        shared = self.measurement
        if rate is None or math.isnan(rate):
            rate = input_wait_share = None
        efficiency = None
        if rate and self._one_replica:
            efficiency = replica_arithmetic.efficiency(
                rate / self._one_replica, shared.num_replicas
            )
        memory = [
            each["peak"] for each in measurement.gpu_memory(shared.strategy)
        ]
        return Line(
            epoch=self._epoch + 1,
            epochs=self.params["epochs"],
            examples_per_second=rate,
            num_replicas=shared.num_replicas,
            efficiency=efficiency,
            input_wait_share=input_wait_share,
            mfu=None if mfu is None or math.isnan(mfu) else mfu,
            learning_rate=self._learning_rate,
            memory_bytes=max(memory, default=None),
            seconds_left=seconds_left,
        )

    def _view(self) -> Table:
        """Returns the line of the running epoch; rich's thread calls it."""
        # The last execution of an epoch may ask for more than there is.
        done = self.measurement.stopwatch.steps
        done = min(done, self._num_steps or done)
        latest = self.measurement.latest()
        rate = share = left = None
        if latest is not None:
            rate, pace, share = latest
            if self._num_steps is not None:
                left = self._seconds_left(pace, done, self._num_steps)
        line = self._line(rate, share, left)
        table = Table.grid(padding=(0, 1))
        bar = ProgressBar(self._num_steps, done, width=20)
        steps = f"{done}/{self._num_steps or '?'}"
        table.add_row(line.title, bar, f"{steps} {line.figures}")
        return table

    def _seconds_left(self, pace: float, done: int, steps: int) -> float:
        epochs_left = self.params["epochs"] - self._epoch - 1
        if self._epoch_seconds is None:
            return pace * (steps * (1 + epochs_left) - done)
        this = self._begin + self._epoch_seconds - time.perf_counter()
        return (
            max(this, pace * (steps - done)) + epochs_left * self._epoch_seconds
        )

    def _print_waiting(self) -> None:
        line, self._waiting = self._waiting, None
        if line is None:
            return
        if self._console.is_terminal:
            self._console.print(f"{line.title}: {line.figures}", soft_wrap=True)
        else:
            print(f"{line.title}: {line.figures}", file=sys.stdout, flush=True)

    def _stop_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _close(self) -> None:
        self._stop_live()
        self._print_waiting()
