"""The `ThroughputLogger` callback: examples per second of every epoch."""

import math
import os
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu import _keras
from kerasmgpu._keras import step_hooks
from kerasmgpu.callbacks import stopwatch
from kerasmgpu.callbacks.json_lines import JsonLines
from kerasmgpu.callbacks.timed_iterator import InputProbe
from kerasmgpu.job import workers

_Batches = list[tuple[int, float]]
"""Rows of each batch, and the seconds of waiting for it."""
_IN_THE_BAR = ("examples_per_second", "input_wait_share")
"""Figures in Keras's progress bar: the speed, and the wait for input."""


class ThroughputLogger(keras.callbacks.Callback):
    """Adds the throughput of each epoch to Keras's logs.

    - `examples_per_second`: over all replicas.
    - `examples_per_second_per_replica`: the same, divided by the number of
      replicas.
    - `steps_per_second`: batches per second.
    - `step_seconds_median`, `step_seconds_p95`: seconds from one step to the
      next.
    - `input_wait_share`: share of the time, 0 to 1, spent waiting for the next
      batch.

    Put it first in the list of callbacks: those after it see the figures. It
    works under any strategy and without one.

    Keras's progress bar and its line per epoch show all logs. Where `fit`
    prints one of these (`verbose` is not 0), only `examples_per_second` and
    `input_wait_share` go into the logs; the other figures go into the history
    that `fit` returns and into the file at `path`. With `verbose=0` all
    figures are in the logs, for `CSVLogger` and `TensorBoard` too.

    Left out are tracing and compilation (the first execution of each `fit`,
    those that trace, those with a new batch size), validation, work of
    callbacks at the end of an epoch, and checkpoints between steps. An epoch
    with no other steps gets NaN. Compilation for other varying shapes, such as
    sentence lengths, is included.

    Examples are counted in the step, so an incomplete last batch counts its
    actual rows. A step is one batch: with gradient accumulation, the optimizer
    makes fewer updates. Under `steps_per_execution` the steps of an execution
    share its time equally.

    GPUs run asynchronously: the time of a single step ends when the host can
    launch the next one. The time of the epoch is exact, since the callback
    waits for the devices at its end, and only there. `input_wait_share` is the
    host's wait, too: near 0 the input is never late; near 1 training is
    input-bound, even if the devices had work during part of the wait.

    With several workers each logs the rates of the whole job by its own clock,
    and three more figures show a straggler: `slowest_worker` (its index),
    `slowest_worker_step_seconds` and `fastest_worker_step_seconds`. These are a
    worker's mean seconds per step up to its gradients: its wait for input and
    its computation, without waiting for other workers. They take one small
    collective per epoch.

    The overhead is 1 % of a step of 2 ms and less of a longer one (the
    benchmark's contender `kerasmgpu_logged`).

    Args:
        path: String or path-like, file to append one line of JSON per epoch
            to: the figures, the number of replicas, the names of their devices
            and the bytes that a step sums over them (`null` if no kerasmgpu
            strategy counts them). `None` for no file; with several workers,
            the first writes. An epoch that is run again after a kill gets
            another line. Defaults to `None`.

    Raises:
        InputError: When training begins, if `path` is a file of another
            format.

    Example:

    ```python
    throughput = kerasmgpu.callbacks.ThroughputLogger("throughput.jsonl")
    history = model.fit(dataset, epochs=5, callbacks=[throughput])
    print(history.history["examples_per_second"])
    ```
    """

    # Keras waits for each step's results if a callback has batch hooks. This
    # one has none, so that nothing waits.

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self.path = path
        self._stopwatch = stopwatch.Stopwatch()
        self._probe: Any = None  # An `InputProbe` once training has begun.
        self._lines: JsonLines | None = None
        _keras.install()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        strategy = self.model.distribute_strategy
        self._devices = _devices(strategy)
        self._num_replicas = strategy.num_replicas_in_sync
        self._num_workers = workers.count(strategy)
        self._lines = None
        if self.path is not None and workers.is_first(strategy):
            self._lines = JsonLines(self.path)
        # A new probe is a new trace, so several `fit` calls share one.
        if self._probe is None or self._probe.strategy is not strategy:
            self._probe = InputProbe(strategy)
        self._stopwatch.reset()
        self._timing = _Timing(
            self.model, self._probe, self._stopwatch, self.params["steps"]
        )
        step_hooks.add(self.model, self._timing)

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._stopwatch.new_epoch()
        self._probe.drain()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        # Validation comes between the last step and the end of the epoch.
        _finish(self._stopwatch, self.model)

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        _finish(self._stopwatch, self.model)
        batches = self._probe.drain()
        comparison: dict[str, Any] = {}
        if self._num_workers > 1:
            batches, comparison = self._over_workers(batches)
        figures = self._stopwatch.figures(batches, self._num_replicas)
        figures.update(comparison)
        self._hand_on(figures, logs)
        if self._lines is not None:
            self._lines.append(
                {
                    "epoch": epoch,
                    "replicas": self._num_replicas,
                    "devices": self._devices,
                    "steps": len(batches),
                    "examples": sum(rows for rows, _ in batches),
                    "reduced_bytes_per_step": getattr(
                        self.model.distribute_strategy,
                        "reduced_bytes_per_step",
                        None,
                    ),
                    **figures,
                }
            )

    def _hand_on(
        self, figures: dict[str, Any], logs: dict[str, Any] | None
    ) -> None:
        """Puts the progress bar's figures into the logs, the others into the history.

        Without output (`verbose=0`), all go into the logs.
        """
        if logs is None:
            return
        if not self.params.get("verbose"):
            logs.update(figures)
            return
        logs.update((name, figures[name]) for name in _IN_THE_BAR)
        history = getattr(self.model, "history", None)
        # All callbacks of a `fit` share one `params`, so this shows that the
        # history is of this `fit` and not of an earlier one.
        if history is not None and history.params is self.params:
            for name, value in figures.items():
                if name not in _IN_THE_BAR:
                    history.history.setdefault(name, []).append(value)

    def _over_workers(
        self, batches: _Batches
    ) -> tuple[_Batches, dict[str, Any]]:
        """Returns batches with all workers' rows, and `compare_workers`."""
        strategy = self.model.distribute_strategy
        own_rows = sum(rows for rows, _ in batches)
        own_seconds = math.nan
        if batches and getattr(strategy, "compute_time", None) is not None:
            waited = sum(seconds for _, seconds in batches) / len(batches)
            own_seconds = waited + strategy.compute_time.take()
        table = workers.gather(strategy, [own_rows, own_seconds])
        if self._timing.splits_batches:
            # Workers have different rows; else all have the same batches.
            factor = table[:, 0].sum() / max(own_rows, 1)
            batches = [(round(rows * factor), s) for rows, s in batches]
        return batches, stopwatch.compare_workers(table[:, 1].tolist())


class _Timing(step_hooks.StepHook):
    """Times the executions of a `fit`, and the requests for their batches.

    Args:
        model: The `keras.Model`.
        probe: `InputProbe` of its strategy.
        timer: `Stopwatch` for the executions.
        num_steps: Integer, steps of an epoch; `None`: not known yet.

    Attributes:
        splits_batches: Boolean, whether workers have different rows of a batch.
    """

    def __init__(
        self,
        model: keras.Model,
        probe: InputProbe,
        timer: stopwatch.Stopwatch,
        num_steps: int | None,
    ) -> None:
        self._model = model
        self._probe = probe
        self._stopwatch = timer
        self._num_steps = num_steps or math.inf
        self._iterator = self._timed = None
        self.splits_batches = False

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        if iterator is not self._iterator:  # Once per epoch.
            self._iterator = iterator
            self.splits_batches = isinstance(
                iterator, tf.distribute.DistributedIterator
            )
            self._timed = self._probe.timed(iterator)
        traces = self._probe.traces
        start = time.perf_counter()
        try:
            logs = run(self._timed)
        except (StopIteration, tf.errors.OutOfRangeError):
            # The end of a data set of unknown length.
            _finish(self._stopwatch, self._model)
            raise
        self._stopwatch.add(
            start,
            time.perf_counter(),
            steps=self._model.steps_per_execution,
            traced=self._probe.traces != traces,
        )
        if self._stopwatch.steps >= self._num_steps:
            _finish(self._stopwatch, self._model)
        return logs


def _finish(timer: stopwatch.Stopwatch, model: keras.Model) -> None:
    """Waits for the devices, then ends the stopwatch's epoch."""
    if timer.finished:
        return
    start = time.perf_counter()
    if workers.count(model.distribute_strategy) == 1:
        tf.test.experimental.sync_devices()
    else:
        # TensorFlow can't wait for one worker's devices only. The step count
        # is available once the last update is done on all workers.
        model.optimizer.iterations.numpy()
    timer.finish(time.perf_counter() - start)


def _devices(strategy: tf.distribute.Strategy) -> list[str]:
    """Returns this worker's devices: `["GPU:0 (NVIDIA H100 80GB HBM3)"]`."""
    try:
        paths = strategy.extended.worker_devices
    except RuntimeError:
        # TensorFlow's default strategy: the first GPU, or else the CPU.
        devices = tf.config.list_logical_devices
        paths = [(devices("GPU") or devices("CPU"))[0].name]
    gpus = tf.config.get_visible_devices("GPU")
    names = []
    for path in paths:
        name = path.rsplit("device:", 1)[-1]
        kind, index = name.split(":")
        if kind == "GPU" and int(index) < len(gpus):
            details = tf.config.experimental.get_device_details(
                gpus[int(index)]
            )
            name = f"{name} ({details.get('device_name', 'unknown')})"
        names.append(name)
    return names
