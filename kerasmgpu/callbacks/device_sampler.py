"""Samples the devices of a worker in a thread."""

import functools
import math
import os
import pathlib
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from kerasmgpu.callbacks.json_lines import JsonLines
from kerasmgpu.engine import devices
from kerasmgpu.hardware.gpu import FAULTY, NOT_SLOWED, Gpu, GpuLost
from kerasmgpu.hardware.nvml import open_nvml

FIGURES = (
    "gpu_utilization_mean",
    "gpu_throttled_mean",
    "gpu_memory_bytes_max",
    "gpu_memory_peak_bytes_max",
    "gpu_temperature_celsius_max",
    "gpu_power_watts_mean",
    "gpu_sm_clock_mhz_mean",
    "host_cpu_utilization_mean",
    "host_memory_bytes_max",
)
"""Figures of an epoch: `<kind of device>_<key of a sample>_<mean or max>`."""
_STATM = pathlib.Path("/proc/self/statm")  # Linux has it.
_SECONDS_TO_START = 10.0  # NVML starts so slowly if no program holds the GPUs.
_SECONDS_TO_END = 5.0  # A driver may not answer for minutes about a lost GPU.


class Sampler:
    """Samples devices in a thread until it is stopped.

    Args:
        names: List of strings, the worker's devices: `["GPU:0", "GPU:1"]`.
            Of these the GPUs are sampled; the host always is.
        seconds: Float, seconds between two samples.
        lines: `JsonLines` to append samples to; `None` for no file.
        worker: Integer, the worker's index.
    """

    def __init__(
        self,
        names: Sequence[str],
        seconds: float,
        lines: JsonLines | None,
        worker: int,
    ) -> None:
        self._gpus = [name for name in names if name.startswith("GPU")]
        self._seconds, self._lines, self._worker = seconds, lines, worker
        self._epoch = _Epoch()
        self._of_gpu = {name: _Epoch() for name in self._gpus}
        self._opened: dict[str, Gpu | None] = {}
        self._slowed: set[str] = set()
        self._denied: set[str] = set()
        self._sampled, self._stopped = threading.Event(), threading.Event()
        # A daemon: a driver that doesn't answer must not keep the process.
        self._thread = threading.Thread(
            target=self._run, name="kerasmgpu-device-stats", daemon=True
        )
        self._thread.start()

    def take(self) -> list[float]:
        """Returns the values of `FIGURES` since the last call; NaN if unknown.

        Means and maxima are over samples of all GPUs, or of the host. Waits for
        the first sample, for 10 seconds at most. If there is no sample since
        the last call, returns the same values as then.
        """
        self._sampled.wait(_SECONDS_TO_START)
        return self._epoch.take()

    def take_gpus(self) -> list[dict[str, float]]:
        """Returns a dictionary of `FIGURES` for each GPU, as `take` does.

        Figures of the host are NaN in it.
        """
        self._sampled.wait(_SECONDS_TO_START)
        epochs = self._of_gpu.values()
        return [dict(zip(FIGURES, epoch.take())) for epoch in epochs]

    def stop(self) -> None:
        """Ends the thread after its current sample; waits 5 seconds at most."""
        self._stopped.set()
        self._thread.join(_SECONDS_TO_END)

    def _run(self) -> None:
        # NVML starts here, too: it may take seconds.
        nvml, reason = open_nvml() if self._gpus else (None, "")
        sources = {"host": Host().sample}
        if self._gpus and nvml is None:
            logging.warning("DeviceStats without counters of GPUs: %s.", reason)
        for line in nvml.lost if nvml else ():
            logging.error("Worker %s: %s.", self._worker, line)
        ordinals = devices.physical_gpus() if self._gpus else {}
        for name in self._gpus:
            try:
                gpu = nvml.of_cuda_device(ordinals[name]) if nvml else None
            except GpuLost as error:
                sources[name] = functools.partial(_raise, error)
                continue
            if nvml is not None and gpu is None:
                logging.warning(
                    "DeviceStats without counters of %s: NVML does not know it.",
                    name,
                )
            sources[name] = functools.partial(sample_gpu, name, gpu)
            self._opened[name] = gpu
        while not self._stopped.is_set():
            self._sample(sources)
            self._sampled.set()
            self._stopped.wait(self._seconds)
        self._do(JsonLines.close)
        if nvml is not None:
            nvml.close()

    def _sample(self, sources: dict[str, Callable[[], dict[str, Any]]]) -> None:
        """Samples and writes each device; removes lost ones from `sources`."""
        records = []
        for device, source in list(sources.items()):
            record = {
                "time": time.time(),
                "worker": self._worker,
                "device": device,
            }
            try:
                sample = source()
                self._epoch.add(device.partition(":")[0].lower(), sample)
                if device in self._of_gpu:
                    self._of_gpu[device].add("gpu", sample)
                self._log_faults(device, sample)
            except GpuLost as error:
                logging.error("Worker %s: %s: %s.", self._worker, device, error)
                sample = {"lost": str(error)}
                del sources[device]
            records.append({**record, **sample})
        self._do(lambda lines: lines.append(*records, sync=False))

    def _log_faults(self, device: str, sample: dict[str, Any]) -> None:
        """Logs, once per GPU, what slows it down and what may not be read."""
        faults = sorted(FAULTY.intersection(sample.get("throttle_reasons", ())))
        if faults and device not in self._slowed:
            self._slowed.add(device)
            logging.warning(
                "Worker %s: %s is slowed down: %s. Check its cooling and power "
                "supply.",
                self._worker,
                device,
                ", ".join(faults),
            )
        gpu = self._opened.pop(device, None)  # After its first sample.
        denied = gpu.denied - self._denied if gpu is not None else set()
        if denied:
            self._denied |= denied
            logging.warning(
                "DeviceStats without some counters of GPUs: this user has no "
                "permission for %s.",
                ", ".join(sorted(denied)),
            )

    def _do(self, action: Callable[[JsonLines], None]) -> None:
        """Calls a function of the file, if there is one; logs its error."""
        if self._lines is not None:
            try:
                action(self._lines)
            except OSError as error:
                logging.error("DeviceStats writes no more lines: %s.", error)
                self._lines = None


class Host:
    """Samples this process: its use of the cores, and its memory."""

    def __init__(self) -> None:
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._total = os.sysconf("SC_PHYS_PAGES") * self._page
        self._before = time.monotonic(), time.process_time()

    def sample(self) -> dict[str, Any]:
        """Returns memory in bytes, and cores kept busy since the last call."""
        now = time.monotonic(), time.process_time()
        seconds, cpu_seconds = (a - b for a, b in zip(now, self._before))
        self._before = now
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sample = {
            "cpu_utilization": cpu_seconds / seconds if seconds else 0.0,
            "memory_peak_bytes": peak
            * (1 if sys.platform == "darwin" else 1024),
            "memory_total_bytes": self._total,
        }
        if _STATM.exists():
            pages = int(_STATM.read_text().split()[1])
            sample["memory_bytes"] = pages * self._page
        return sample


def sample_gpu(name: str, gpu: Gpu | None) -> dict[str, Any]:
    """Returns the sample of one of TensorFlow's GPUs.

    Args:
        gpu: The `Gpu` that reads its counters; `None` for TensorFlow's
            figures only.

    Raises:
        GpuLost: If the driver can't reach the GPU any more.
    """
    # TensorFlow's peak counts its tensors only, nothing else on the GPU.
    peak = tf.config.experimental.get_memory_info(name)["peak"]
    return {**(gpu.sample() if gpu else {}), "memory_peak_bytes": peak}


def _raise(error: GpuLost) -> dict[str, Any]:
    """The source of a GPU that was lost before its first sample."""
    raise error


class _Epoch:
    """Aggregates the samples of an epoch in constant memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = [math.nan] * len(FIGURES)
        self._sums: dict[str, tuple[float, int]] = {}
        self._maxima: dict[str, float] = {}

    def add(self, kind: str, sample: dict[str, Any]) -> None:
        """Adds a sample of a `"gpu"` or of the `"host"`."""
        reasons = sample.get("throttle_reasons")
        if reasons is not None:
            slowed = not NOT_SLOWED.issuperset(reasons)
            sample = {**sample, "throttled": int(slowed)}
        with self._lock:
            for key, value in sample.items():
                if isinstance(value, int | float):
                    name = f"{kind}_{key}"
                    total, count = self._sums.get(name, (0.0, 0))
                    self._sums[name] = total + value, count + 1
                    self._maxima[name] = max(
                        value, self._maxima.get(name, value)
                    )

    def take(self) -> list[float]:
        """See `Sampler.take`."""
        with self._lock:
            if self._sums:
                self._taken = [self._figure(name) for name in FIGURES]
            self._sums, self._maxima = {}, {}
        return self._taken

    def _figure(self, name: str) -> float:
        key, _, kind = name.rpartition("_")
        if key not in self._sums:
            return math.nan
        total, count = self._sums[key]
        return self._maxima[key] if kind == "max" else total / count
