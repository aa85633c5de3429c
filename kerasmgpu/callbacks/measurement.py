"""Times a `fit`, once for all callbacks that show its timing.

A callback that reads it derives from `MeasuringCallback`. All such callbacks of
a `fit` share one hook around the step, one `InputProbe` and one `Stopwatch`;
the figures of an epoch are computed once.
"""

import contextlib
import math
import time
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu import _keras
from kerasmgpu._keras import fit, step_hooks
from kerasmgpu.callbacks import stopwatch
from kerasmgpu.callbacks.local_devices import local_devices, utilization
from kerasmgpu.callbacks.timed_iterator import InputProbe
from kerasmgpu.engine import fit_clock
from kerasmgpu.engine.fit_clock import FitClock
from kerasmgpu.job import workers

_WINDOW_SECONDS = 5.0
_LATEST_BATCHES = 8  # `latest` averages their rows and waits.
_MOST_LETTERS = 50  # Of the name of another worker's callback.

_probes: dict[int, InputProbe] = {}
"""Probes by the ids of their models: a new probe would need a new trace.

Not a `WeakKeyDictionary`: users' models may define `__eq__`.
"""


class Measurement(step_hooks.StepHook):
    """Times the steps of one `fit`.

    It waits for the devices only at the end of an epoch.

    Args:
        model: The `keras.Model` in training.
        params: Dictionary, the `params` that the callbacks of the `fit` share.

    Attributes:
        strategy: The model's `tf.distribute.Strategy`.
        num_replicas: Integer, replicas of all workers.
        num_workers: Integer, workers of the job.
        params: The argument.
        clock: The `FitClock` of the `fit`.
        stopwatch: The `Stopwatch` of the epoch.
        probe: The `InputProbe` of the model.
        batches: List of `(rows, seconds)` per step of the last finished epoch:
            rows over all workers, and the wait for the batch.
        step_seconds: NumPy array `[steps]`, seconds per step of the last
            finished epoch; steps that compiled are left out.
        worker_step_seconds: List of each worker's mean seconds per step of
            the last finished epoch, up to its gradients and without waiting
            for other workers; empty for one worker.
        spent: Dictionary from kinds of work (`engine.fit_clock`) to seconds,
            which divides the executions of the last finished epoch; what it
            leaves of them is computation.
        steps_end: Float, `time.perf_counter` when the steps of the last
            finished epoch were done.
        at_end: `contextlib.ExitStack`, closed when `fit` returns or raises.

    Example:

    ```python
    class Median(MeasuringCallback):
        def on_epoch_end(self, epoch, logs=None):
            figures = self.measurement.finish_epoch()
            print(figures["step_seconds_median"])
    ```
    """

    def __init__(self, model: keras.Model, params: dict[str, Any]) -> None:
        self.strategy = model.distribute_strategy
        self.num_replicas = self.strategy.num_replicas_in_sync
        self.num_workers = workers.count(self.strategy)
        self.params = params
        self.stopwatch = stopwatch.Stopwatch()
        self.probe = _probe(model, self.strategy)
        self.batches: list[tuple[int, float]] = []
        self.step_seconds = np.zeros(0)
        self.worker_step_seconds: list[float] = []
        self.spent: dict[str, float] = {}
        self.steps_end = math.nan
        self.at_end = contextlib.ExitStack()
        running = fit.innermost()
        self.clock = FitClock() if running is None else running.clock
        self._model = model
        self._num_steps = params["steps"] or math.inf
        self._epoch: int | None = None
        self._figures: dict[str, Any] | None = None
        self._iterator: Any = None
        self._timed: Any = None
        self._splits_batches = False
        self._own_seconds = math.nan
        self._of_callbacks: dict[str, float] = {}
        self._awaited = ("", 0.0)
        self._compute_time = getattr(self.strategy, "compute_time", None)
        step_hooks.add(model, self)

    @classmethod
    def of(cls, callback: keras.callbacks.Callback) -> "Measurement":
        """Returns the measurement of a callback's running `fit`.

        The first callback creates it, the others join. Call it in
        `on_train_begin`, on all workers; `_keras.install()` must have been
        called before the `fit`, which then removes the measurement.
        """
        for hook in step_hooks.hooks_of(callback.model):
            # All callbacks of a `fit` share one `params`; those of a `fit` of
            # the same model inside a callback have others.
            if isinstance(hook, cls) and hook.params is callback.params:
                return hook
        return cls(callback.model, callback.params)

    def begin_epoch(self, epoch: int) -> None:
        """Begins an epoch; does nothing if another callback has begun it."""
        if self._epoch != epoch:
            self._epoch, self._figures = epoch, None
            self.stopwatch.new_epoch()
            self.probe.drain()
            if self._compute_time is not None:
                self._compute_time.take()  # Drops that of earlier steps.

    def finish_steps(self) -> None:
        """Ends the epoch's steps, before its validation: waits for the devices."""
        if self.stopwatch.finished:
            return
        start = time.perf_counter()
        with self.clock.within(fit_clock.COMPUTATION):
            self.wait()
        self.steps_end = time.perf_counter()
        self.stopwatch.finish(self.steps_end - start)

    def wait(self) -> None:
        """Waits for this worker's devices."""
        if self.num_workers == 1:
            tf.test.experimental.sync_devices()
        else:
            # TensorFlow can't wait for one worker's devices only. The step
            # count is available once the last update is done on all workers.
            self._model.optimizer.iterations.numpy()

    def finish_epoch(self) -> dict[str, Any]:
        """Ends the epoch and returns its figures; collective between workers.

        The first call of an epoch computes them; the others return the same
        dictionary.

        Returns:
            Dictionary of floats, as in `ThroughputLogger`; NaN if no step of
            the epoch could be measured.
        """
        self.finish_steps()
        if self._figures is None:
            self.batches, comparison = self.probe.drain(), {}
            if self.num_workers > 1:
                comparison = self._over_workers()
            self._figures = self.stopwatch.figures(
                self.batches, self.num_replicas
            )
            self.step_seconds = self.stopwatch.step_seconds
            self._figures.update(utilization(self.strategy, self._figures))
            self._figures.update(comparison)
            self._divide()
        return self._figures

    def latest(self) -> tuple[float, float, float] | None:
        """Returns figures of the last seconds, while the epoch runs.

        A thread that shows them may call it; no step waits.

        Returns:
            Tuple of examples per second of all workers (this worker's, times
            the number of workers), seconds per step, and the share of the time
            waiting for input; `None` until a step without tracing is done.
        """
        pace = self.stopwatch.pace(_WINDOW_SECONDS)
        batches = self.probe.latest(_LATEST_BATCHES)
        if not pace or not batches:
            return None
        rows = sum(rows for rows, _ in batches) / len(batches)
        waited = sum(seconds for _, seconds in batches) / len(batches)
        factor = self.num_workers if self._splits_batches else 1
        return rows * factor / pace, pace, min(1.0, waited / pace)

    def on_removed(self) -> None:
        """Closes `at_end`."""
        self.at_end.close()

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        """Times one execution, and the requests for its batches."""
        if self.stopwatch.finished:
            return run(iterator)  # A `fit` inside a callback.
        if iterator is not self._iterator:  # Once per epoch.
            self._iterator = iterator
            self._splits_batches = isinstance(
                iterator, tf.distribute.DistributedIterator
            )
            self._timed = self.probe.timed(iterator)
        traces = self.probe.traces
        start = time.perf_counter()
        self.clock.switch(fit_clock.STEPS, start)
        try:
            logs = run(self._timed)
        except (StopIteration, tf.errors.OutOfRangeError):
            # The end of a data set of unknown length.
            self.clock.rename(fit_clock.INPUT)
            self.clock.switch(fit_clock.OTHER)
            self.finish_steps()
            raise
        end = time.perf_counter()
        # Until the next execution, Keras reads this one's logs.
        self.clock.switch(fit_clock.COMPUTATION, end)
        self.stopwatch.add(
            start,
            end,
            steps=self._model.steps_per_execution,
            traced=self.probe.traces != traces,
        )
        if self.stopwatch.steps >= self._num_steps:
            self.finish_steps()
            self.clock.switch(fit_clock.OTHER)
        return logs

    def _divide(self) -> None:
        """Sets `spent` to the parts of the executions that are no computation."""
        watch = self.stopwatch
        self.spent = {
            fit_clock.TRACING: watch.tracing_seconds,
            fit_clock.INPUT: watch.input_seconds,
        }
        if math.isfinite(self._own_seconds):
            computed = self._own_seconds * len(self.batches)
            together = max(0.0, watch.busy_seconds - computed)
            kind, seconds = self._awaited
            waited = min(together, seconds)
            self.spent[kind] = waited
            self.spent[fit_clock.COMMUNICATION] = together - waited

    def _callbacks(self) -> tuple[float, str]:
        """Returns this epoch's seconds in callbacks, and the slowest one's kind."""
        now = {
            kind: seconds
            for kind, seconds in self.clock.so_far().items()
            if kind.startswith(fit_clock.CALLBACK)
        }
        before, self._of_callbacks = self._of_callbacks, now
        spent = {kind: s - before.get(kind, 0.0) for kind, s in now.items()}
        longest = max(spent, key=lambda kind: spent[kind], default="")
        return sum(spent.values()), longest

    def _over_workers(self) -> dict[str, Any]:
        """Gathers the workers' rows and step times; returns their comparison.

        Scales `batches` to the rows of all workers; sets `worker_step_seconds`.
        """
        batches = self.batches
        own_rows = sum(rows for rows, _ in batches)
        own_seconds = math.nan
        if batches and self._compute_time is not None:
            waited = sum(seconds for _, seconds in batches) / len(batches)
            self._own_seconds = self._compute_time.take()
            own_seconds = waited + self._own_seconds
        seconds, kind = self._callbacks()
        table = workers.gather(
            self.strategy, [own_rows, own_seconds, seconds, *_letters(kind)]
        )
        # Others wait in their next step for a worker that runs callbacks.
        longest = int(table[:, 2].argmax())
        kind = "".join(map(chr, table[longest, 3:].astype(int))).rstrip()
        self._awaited = (
            f"{kind} on worker {longest}",
            table[longest, 2] - seconds,
        )
        if self._splits_batches:
            # Shares differ between workers; whole batches are the same on all.
            factor = table[:, 0].sum() / max(own_rows, 1)
            self.batches = [(round(rows * factor), s) for rows, s in batches]
        self.worker_step_seconds = table[:, 1].tolist()
        return stopwatch.compare_workers(self.worker_step_seconds)


class MeasuringCallback(keras.callbacks.Callback):
    """Base class of callbacks that read the `Measurement` of their `fit`.

    A subclass calls `self.measurement.finish_epoch()` in `on_epoch_end`, on
    all workers. A hook that it overrides must call that of this class.

    Attributes:
        measurement: The `Measurement`, from `on_train_begin` on.
    """

    # Keras waits for each step's results if a callback has batch hooks. This
    # one has none, so that nothing waits.

    measurement: Measurement

    needs_all_workers = True
    """All workers run it: it starts collectives, or changes the step."""

    def __init__(self) -> None:
        super().__init__()
        _keras.install()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.measurement = Measurement.of(self)

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self.measurement.begin_epoch(epoch)

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        # Validation comes between the last step and the end of the epoch.
        self.measurement.finish_steps()


def gpu_memory(strategy: tf.distribute.Strategy) -> list[dict[str, int]]:
    """Returns `"current"` and `"peak"` bytes of each GPU of this worker."""
    return [
        tf.config.experimental.get_memory_info(name)
        for name in local_devices(strategy)
        if name.startswith("GPU")
    ]


def learning_rate(model: keras.Model) -> float | None:
    """Returns the last step's learning rate; `None` if the optimizer has none.

    With a schedule, Keras's `learning_rate` is already that of the next step.
    """
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    rate = getattr(optimizer, "learning_rate", None)
    schedule = getattr(optimizer, "_learning_rate", None)
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        # Each step of accumulated gradients counts.
        rate = schedule(max(int(optimizer._iterations) - 1, 0))
    return None if rate is None else float(rate)


def _letters(text: str) -> list[int]:
    """Returns a text as numbers, which workers can gather."""
    return [ord(letter) for letter in text[:_MOST_LETTERS].ljust(_MOST_LETTERS)]


def _probe(model: keras.Model, strategy: tf.distribute.Strategy) -> InputProbe:
    """Returns the probe of a model and strategy, kept for the next `fit`.

    While another `fit` of the model uses it, returns a new one that isn't kept.
    """
    kept = _probes.get(id(model))
    for hook in step_hooks.hooks_of(model):
        if isinstance(hook, Measurement) and hook.probe is kept:
            return InputProbe(strategy)
    if kept is None or kept.strategy is not strategy:
        if kept is None:
            weakref.finalize(model, _probes.pop, id(model), None).atexit = False
        kept = _probes[id(model)] = InputProbe(strategy)
    return kept
