"""The `DeviceStats` callback: use, memory, power and clocks of the devices."""

import os
from typing import Any

import keras
import numpy as np

from kerasmgpu import _keras
from kerasmgpu._keras import step_hooks
from kerasmgpu.callbacks.device_sampler import FIGURES, Sampler
from kerasmgpu.callbacks.json_lines import JsonLines
from kerasmgpu.callbacks.local_devices import local_devices
from kerasmgpu.callbacks.throughput import hand_on
from kerasmgpu.errors import InputError, checked_arguments
from kerasmgpu.job import workers
from kerasmgpu.stores.places import Place, checked_place, place
from kerasmgpu.stores.store_path import StorePath


class DeviceStats(keras.callbacks.Callback):
    """Records utilisation, memory, power and clocks of the devices.

    A thread samples the GPUs that the strategy trains on (by nvidia-ml-py,
    `pip install nvidia-ml-py`) and this process: its CPU time and memory. No
    step waits for the thread, which ends with `fit`, also if `fit` raises. A
    lost GPU is logged once; sampling of the others continues.

    These figures over all workers' devices are added to the history of each
    epoch (and to the logs, under `verbose=0`); unknown ones are left out:

    - `gpu_utilization_mean`: share of the time, 0 to 1, in which a kernel ran.
    - `gpu_throttled_mean`: share of the time in which power or heat lowered
      the clocks.
    - `gpu_memory_bytes_max`: memory in use, by all programs.
    - `gpu_memory_peak_bytes_max`: peak memory of TensorFlow's tensors.
    - `gpu_temperature_celsius_max`, `gpu_power_watts_mean`,
      `gpu_sm_clock_mhz_mean`.
    - `host_cpu_utilization_mean`: CPU cores that a worker's process keeps busy.
    - `host_memory_bytes_max`: resident memory of a worker's process.

    Args:
        path: String, path-like or URL, file to append a line of JSON per device and
            sample to. With several workers, worker 1 writes
            `devices.worker1.jsonl` where the first one writes
            `devices.jsonl`, so that a lost worker's samples are kept. `None`
            for no file. Defaults to `None`.
        seconds: Float, seconds between two samples, at least 0.1. Defaults to
            1.0.

    Raises:
        InputError: If `seconds` is less than 0.1, and when training begins, if
            `path` is a file of another format.

    Example:

    ```python
    stats = kerasmgpu.callbacks.DeviceStats("devices.jsonl")
    history = model.fit(dataset, epochs=5, callbacks=[stats])
    print(history.history["host_memory_bytes_max"])
    ```
    """

    needs_all_workers = True
    """All workers run it: gathering their figures is collective."""

    @checked_arguments
    def __init__(
        self,
        path: str | os.PathLike[str] | StorePath | None = None,
        seconds: float = 1.0,
    ) -> None:
        super().__init__()
        if not seconds >= 0.1:
            raise InputError(
                f"seconds must be at least 0.1. Received: seconds={seconds}"
            )
        self.path = None if path is None else str(checked_place(path, "path"))
        self.seconds = seconds
        _keras.install()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        strategy = self.model.distribute_strategy
        worker = workers.index(strategy)
        lines = None
        if self.path is not None:
            lines = JsonLines(path_of_worker(self.path, worker))
        self._sampler = Sampler(
            local_devices(strategy), self.seconds, lines, worker
        )
        step_hooks.add(self.model, _StopsAtEnd(self._sampler))

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        table = workers.gather(
            self.model.distribute_strategy, self._sampler.take()
        )
        figures = {}
        for name, values in zip(FIGURES, table.T):
            known = values[~np.isnan(values)]
            if known.size:
                is_maximum = name.endswith("_max")
                figure = known.max() if is_maximum else known.mean()
                figures[name] = float(figure)
        hand_on(self, figures, logs)


class _StopsAtEnd(step_hooks.StepHook):
    """Stops a `Sampler` when `fit` returns or raises."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def on_removed(self) -> None:
        self._sampler.stop()


def path_of_worker(path: str | os.PathLike[str], worker: int) -> Place:
    """Returns a worker's file, `devices.worker1.jsonl`; worker 0 has `path`."""
    own = place(path)
    if not worker:
        return own
    return own.with_name(f"{own.stem}.worker{worker}{own.suffix}")
