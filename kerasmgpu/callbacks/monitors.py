"""The `Monitors` callback: speed, memory and norms in TensorBoard."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kerasmgpu._keras import step_hooks
from kerasmgpu._keras.norms import FunctionWithNorms
from kerasmgpu.callbacks import device_sampler, measurement
from kerasmgpu.callbacks.event_file import EventFile
from kerasmgpu.callbacks.measurement import MeasuringCallback
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.errors import (
    InputError,
    checked_arguments,
    checked_choice,
    checked_integer,
    checked_path,
)
from kerasmgpu.job import workers

_OF_A_GPU = (
    "memory/current_allocated_mem",
    "memory/peak_allocated_mem",
    "gpu_percentage",
    "gpu_temperature_C",
    "gpu_power_usage_W",
)
_OF_A_HOST = ("host_cpu_cores", "host_memory_GB")
_SECONDS_BETWEEN_SAMPLES = 1.0  # Of the devices.


class Monitors(MeasuringCallback):
    """Writes speed, learning rate, memory and norms for TensorBoard.

    One run for all workers: the first one writes. The tags are those of
    MosaicML Composer's monitors; a rank is a replica:

    - `throughput/batches_per_sec`, `throughput/samples_per_sec`, and the same
      divided by the number of replicas as `throughput/device/...`; where FLOPs
      and the device's peak are known, `throughput/flops_per_sec`,
      `throughput/device/flops_per_sec` and `throughput/device/mfu`.
    - `lr-<Optimizer>/group0`.
    - `memory/current_allocated_mem/Rank_0` and
      `memory/peak_allocated_mem/Rank_0`, in GB, of every GPU; by nvidia-ml-py
      its `gpu_percentage/Rank_0` (share of the time in which a kernel ran),
      `gpu_temperature_C/Rank_0` and `gpu_power_usage_W/Rank_0`.
    - `l2_norm/grad/global`, `l2_norm/update/global` (the change of the
      weights), and with `norms="variables"` the same of each variable, such as
      `l2_norm/grad/dense/kernel`.
    - Of our own, per epoch: the histogram `step_seconds`,
      `input_wait_share`, `host_cpu_cores/Worker_0` (kept busy by its process),
      `host_memory_GB/Worker_0`, and with several workers
      `worker_step_seconds/Worker_0`, its mean step up to its gradients.

    An epoch's figures are those of `ThroughputLogger`, written at its last
    step. Every `every` steps there are figures of the last five seconds, the
    learning rate, and norms. A step on the x axis is a batch; it continues
    the optimizer's count.

    Norms are exact on any number of replicas and with sharded variables: they
    are computed in the step, from gradients before clipping and without loss
    scale. They don't change training. Steps with norms run a second program,
    which is traced and compiled at the first of them; all other steps run the
    same program as with `norms=None`.

    Args:
        log_dir: String or path-like, folder of the run.
        every: Integer, steps from one sample to the next; each sample waits
            once for the devices. Defaults to 100.
        norms: `None`: none. `"global"`: of all gradients and updates.
            `"variables"`: also of each variable. Defaults to `None`.
        profile_steps: Tuple of the first and the last step to profile,
            counted from 1 in this `fit`. The first worker's profile is
            written to `log_dir`; `xprof` or TensorBoard's profile plugin opens
            it. Defaults to `None`.

    Raises:
        InputError: If an argument is out of range, if `log_dir` can't be
            written, or for norms under a strategy of TensorFlow.

    Example:

    ```python
    monitors = kerasmgpu.callbacks.Monitors("logs", norms="global")
    model.fit(dataset, epochs=5, callbacks=[monitors])
    ```
    """

    @checked_arguments
    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        every: int = 100,
        norms: str | None = None,
        profile_steps: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.log_dir = checked_path(log_dir, "log_dir", of_tensorflow=True)
        self.every = checked_integer(every, "every", 1)
        self.norms = norms
        if norms is not None:
            checked_choice(norms, "norms", ("global", "variables"))
        self.profile_steps = _checked_steps(profile_steps)
        # Kept for the next `fit`: a new one is traced anew.
        self.function: FunctionWithNorms | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        strategy = self.measurement.strategy
        if self.norms and _is_tensorflows(strategy):
            raise InputError(
                "norms need a strategy of kerasmgpu, or none. Received: a model "
                f"of {type(strategy).__name__}; leave norms=None, or build the "
                "model in the scope of kerasmgpu.MirroredStrategy"
            )
        self._file = None
        if workers.is_first(strategy):
            self._file = EventFile(self.log_dir)
            self.measurement.at_end.callback(self._file.close)
        self._sampler = device_sampler.Sampler(
            measurement.local_devices(strategy),
            _SECONDS_BETWEEN_SAMPLES,
            None,
            workers.index(strategy),
        )
        self.measurement.at_end.callback(self._sampler.stop)
        self._samples = _Samples(self)
        step_hooks.add(self.model, self._samples, innermost=True)

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        shared = self.measurement
        figures = shared.finish_epoch()
        devices = self._devices()
        if self._file is None:
            return
        seconds = enumerate(shared.worker_step_seconds)
        self._file.write(
            self._samples.step,
            {
                **self._throughput(
                    figures["steps_per_second"],
                    figures["examples_per_second"],
                    figures.get("flops_per_second"),
                ),
                "throughput/device/mfu": figures.get("mfu"),
                "input_wait_share": figures["input_wait_share"],
                **{f"worker_step_seconds/Worker_{n}": s for n, s in seconds},
                **devices,
                **self.learning_rates(),
            },
            {"step_seconds": shared.step_seconds},
        )
        self._file.flush()

    def write(self, norms: Mapping[str, float]) -> None:
        """Writes a sample; does nothing on workers other than the first.

        Args:
            norms: Dictionary from tags to norms.
        """
        if self._file is None:
            return
        scalars = {**self.learning_rates(), **norms}
        latest = self.measurement.latest()
        if latest is not None:
            rate, pace, _ = latest
            scalars.update(self._throughput(1 / pace, rate))
        self._file.write(self._samples.step, scalars)

    def learning_rates(self) -> dict[str, float | None]:
        """Returns `{tag: learning rate}`, with `None` if there is none."""
        optimizer = self.model.optimizer
        kind = type(getattr(optimizer, "inner_optimizer", optimizer)).__name__
        return {f"lr-{kind}/group0": measurement.learning_rate(self.model)}

    def _throughput(
        self, batches: float, samples: float, flops: float | None = None
    ) -> dict[str, float]:
        rates = {"batches": batches, "samples": samples}
        if flops is not None:
            rates["flops"] = flops
        replicas = self.measurement.num_replicas
        return {
            f"throughput/{of}{name}_per_sec": rate / by
            for name, rate in rates.items()
            for of, by in (("", 1), ("device/", replicas))
        }

    def _devices(self) -> dict[str, float]:
        """Returns figures of all workers' GPUs and hosts by tag; collective."""
        shared = self.measurement
        local = shared.num_replicas // shared.num_workers
        own = np.full([local, len(_OF_A_GPU)], np.nan)
        memory = measurement.gpu_memory(shared.strategy)
        for row, of_it, sampled in zip(own, memory, self._sampler.take_gpus()):
            row[:2] = of_it["current"] / 1e9, of_it["peak"] / 1e9
            row[2] = 100 * sampled["gpu_utilization_mean"]
            row[3] = sampled["gpu_temperature_celsius_max"]
            row[4] = sampled["gpu_power_watts_mean"]
        host = dict(zip(device_sampler.FIGURES, self._sampler.take()))
        of_host = [
            host["host_cpu_utilization_mean"],
            host["host_memory_bytes_max"] / 1e9,
        ]
        table = workers.gather(shared.strategy, [*own.ravel(), *of_host])
        figures = {}
        for worker, row in enumerate(table):
            gpus = row[: own.size].reshape(own.shape)
            for gpu, values in enumerate(gpus.tolist()):
                rank = f"Rank_{worker * local + gpu}"
                figures.update(zip((f"{k}/{rank}" for k in _OF_A_GPU), values))
            names = (f"{name}/Worker_{worker}" for name in _OF_A_HOST)
            figures.update(zip(names, row[own.size :].tolist()))
        return figures


def _is_tensorflows(strategy: tf.distribute.Strategy) -> bool:
    if is_ours(strategy):
        return False
    # Outside of any scope, TensorFlow's default strategy is the current one.
    is_default = strategy is tf.distribute.get_strategy()
    return tf.distribute.has_strategy() or not is_default


def _checked_steps(steps: Sequence[int] | None) -> tuple[int, int] | None:
    if steps is None:
        return None
    try:
        first, last = steps
    except (TypeError, ValueError):
        raise InputError(
            "profile_steps must be a pair of the first and the last step. "
            f"Received: profile_steps={steps!r}"
        ) from None
    first = checked_integer(first, "profile_steps[0]", 1)
    return first, checked_integer(last, "profile_steps[1]", first)


_NOTHING = contextlib.nullcontext()


class _Samples(step_hooks.StepHook):
    """Counts the steps; takes samples, norms and the profile of a `Monitors`.

    Attributes:
        step: Integer, batches that the optimizer has seen, those of earlier
            `fit`s included; 0 until the first execution.
    """

    def __init__(self, monitors: Monitors) -> None:
        self.step = 0
        self._monitors = monitors
        self._model = monitors.model
        self._first_step: int | None = None
        self._profile = _Profile(monitors)

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        if self._first_step is None:  # Now a restored model is complete.
            self.step = self._first_step = _batches(self._model.optimizer)
        before, every = self.step, self._monitors.every
        after = before + self._model.steps_per_execution
        is_sample = before // every != after // every
        function = self._with_norms() if is_sample else None
        hooked = self._model.train_function
        if function is not None:
            hooked.function = function
        try:
            with self._profile.around(after - self._first_step):
                logs = run(iterator)
        finally:
            # While `ChooseXla` chooses, it sets the function that runs.
            if function is not None and hooked.function is function:
                hooked.function = function.made_for
        self.step = after
        if is_sample:
            norms = None if function is None else function.take()
            self._monitors.write({} if norms is None else self._tagged(*norms))
        return logs

    def _with_norms(self) -> FunctionWithNorms | None:
        """Returns a train function that also computes norms; keeps it.

        `None` if the callback's `norms` are `None`.
        """
        if self._monitors.norms is None:
            return None
        function = self._monitors.function
        own = self._model.train_function.function
        if function is None or function.made_for is not own:
            function = FunctionWithNorms(self._model)
        self._monitors.function = function
        return function

    def _tagged(self, paths: list[str], norms: np.ndarray) -> dict[str, float]:
        """Returns norms by tag.

        Args:
            norms: NumPy array `[variables, 2]`, of gradients and updates.
        """
        tags = {"global": np.linalg.norm(norms, axis=0)}
        if self._monitors.norms == "variables":
            tags.update(zip(paths, norms))
        return {
            f"l2_norm/{kind}/{name}": float(norm)
            for name, pair in tags.items()
            for kind, norm in zip(("grad", "update"), pair)
        }


class _Profile:
    """Profiles some steps of a `fit`, on the first worker."""

    def __init__(self, monitors: Monitors) -> None:
        self._log_dir = monitors.log_dir
        self._measurement = monitors.measurement
        is_first = workers.is_first(monitors.measurement.strategy)
        self._steps = monitors.profile_steps if is_first else None
        self._runs = False

    def around(self, after: int) -> contextlib.AbstractContextManager[None]:
        """Returns a context for the execution that ends with step `after`.

        It profiles the execution if `profile_steps` says so.
        """
        if self._steps is None or after < self._steps[0]:
            return _NOTHING
        return self._traced(after, self._steps[1])

    @contextlib.contextmanager
    def _traced(self, after: int, last: int) -> Iterator[None]:
        if not self._runs:
            self._measurement.wait()
            tf.profiler.experimental.start(self._log_dir)
            self._runs = True
            self._measurement.at_end.callback(self._stop)
        with tf.profiler.experimental.Trace("train", step_num=after, _r=1):
            yield
        if after >= last:
            self._measurement.wait()
            self._stop()

    def _stop(self) -> None:
        if self._runs:
            self._runs, self._steps = False, None
            tf.profiler.experimental.stop()


def _batches(optimizer: Any) -> int:
    """Returns the batches that an optimizer has seen."""
    if optimizer is None:
        return 0
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    accumulated = inner.gradient_accumulation_steps or 1
    return int(inner.iterations) * accumulated
