"""Finds the batch size: starts the processes that measure."""

import dataclasses
import os
import pathlib
import signal
import tempfile
import time
from collections.abc import Callable
from typing import Any

from kerasmgpu import atomic_files
from kerasmgpu.commands import child_processes, plots, references
from kerasmgpu.commands.command_line import LOADING
from kerasmgpu.errors import (
    InputError,
    checked_arguments,
    checked_integer,
    checked_number,
    checked_path,
)
from kerasmgpu.finders import batch_size_measuring, batch_size_report
from kerasmgpu.finders.batch_size_report import BatchSizes
from kerasmgpu.finders.batch_size_search import Limits, next_size
from kerasmgpu.job import cluster
from kerasmgpu.strategy_settings import settings_of_command


@checked_arguments
def find_batch_size(
    build: Callable[[], Any] | str,
    data: Callable[[], Any] | str | None = None,
    *,
    num_replicas: int | None = None,
    virtual_devices: int | None = None,
    shard: str | None = None,
    micro_batches: int = 1,
    low: int = 8,
    high: int | None = None,
    precision: float = 0.05,
    stop_when_flat: bool = True,
    target_efficiency: float = 0.9,
    seconds: float = 1,
    timeout_seconds: float = 300,
    plot: str | os.PathLike[str] | None = None,
    show: bool = True,
) -> BatchSizes:
    """Finds the largest global batch that trains, and the smallest fast one.

    Measures examples per second in a process of its own, which may run out of
    memory or be killed for it; none is left. The size is doubled until it
    fails, exceeds the rows of the data, or two doublings raise the speed by
    less than 5 %; if it fails, the largest that trains is found by bisection.
    (Doubling while the throughput doubles, and the limit where it no longer
    does: Godbole et al., Deep Learning Tuning Playbook, 2023, "Determining the
    feasible batch sizes and estimating training throughput".)

    A batch of the wanted size is made of the rows of the arrays, or of the
    rows of a data set's first batch, from the first one again after the last.
    It is kept in memory: waiting for input is not measured. Speed is one
    criterion for a batch size; a larger batch needs fewer steps of another
    learning rate, see `docs/larger_batches.md`.

    Args:
        build: Function without arguments that returns a compiled
            `keras.Model`, or a pair `(model, data)`; or its name,
            `"my_module:build"` or `"path/to/file.py:build"`. It is called in
            the strategy's scope, in another process, so it must be at the top
            level of a module.
        data: Function without arguments, or its name, that returns the data,
            as for `kerasmgpu.verify`. Default: the data that `build` returns,
            or the function `data` of its module.
        num_replicas: Integer, replicas. Default: all visible GPUs.
        virtual_devices: Integer, logical CPU devices to use as replicas.
        shard: String, what the replicas divide: `"optimizer"`, `"weights"` or
            `"embeddings"`. Default: `"none"`.
        micro_batches: Integer, parts in which a replica works through its
            rows. Defaults to 1.
        low: Integer, the first global batch size; larger ones are multiples
            of it. If it fails, it is halved. At least `micro_batches`.
            Defaults to 8.
        high: Integer, the largest size to measure. Default: the number of rows
            of the data, where they tell it.
        precision: Float, from 0: bisection ends when the smallest size that
            fails is larger by at most this share. Defaults to 0.05.
        stop_when_flat: Boolean; `False` doubles on where the speed no longer
            rises, to find the largest size. Defaults to `True`.
        target_efficiency: Float above 0, up to 1: the share of the best
            examples per second that `recommended` reaches. Defaults to 0.9.
        seconds: Number, how long to measure each size, at least six steps.
            Defaults to 1.
        timeout_seconds: Number, limit for one size, with starting and tracing;
            a size that takes longer has failed. Defaults to 300.
        plot: Path of a PNG file of examples per second over the batch size.
            Default: none.
        show: Boolean, whether to print progress and the table. Defaults to
            `True`.

    Returns:
        `BatchSizes`.

    Raises:
        InputError: If the model does not train at all, or an argument is
            invalid.

    Example:

    ```python
    if __name__ == "__main__":
        found = kerasmgpu.find_batch_size("my_module:build", num_replicas=2)
        print(found.largest, found.recommended)
    ```
    """
    if cluster.from_environment() is not None:
        raise InputError(
            "find_batch_size measures the replicas of one machine. Received: a "
            "job of several workers; run it on one of them, outside of the job"
        )
    target = checked_number(target_efficiency, "target_efficiency")
    if target > 1:
        raise InputError(
            "target_efficiency must be a number above 0, up to 1. Received: "
            f"target_efficiency={target_efficiency!r}"
        )
    limits = _limits(low, high, precision, stop_when_flat)
    if limits.low < checked_integer(micro_batches, "micro_batches", 1):
        raise InputError(
            "low must be at least micro_batches: a batch has a row for each. "
            f"Received: low={low}, micro_batches={micro_batches}"
        )
    job = {
        **references.job(build, data, "find_batch_size"),
        "strategy": {
            "num_replicas": num_replicas,
            "virtual_devices": virtual_devices,
            **settings_of_command(shard, micro_batches),
        },
        "limits": dataclasses.asdict(limits),
        "seconds": checked_number(seconds, "seconds"),
    }
    timeout = checked_number(timeout_seconds, "timeout_seconds")
    if plot is not None:
        atomic_files.require_place(checked_path(plot, "plot"), "plot")
        plots.tell_if_missing()
    if show:
        print(f"measuring {job['build']}: {LOADING}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-batch-size-") as folder:
        search = _Search(job, limits, pathlib.Path(folder), timeout, show)
        facts, measured = search.run()
    found = batch_size_report.result(facts, measured, target)
    if show:
        batch_size_report.show(found, facts, target)
    if plot is not None:
        batch_size_report.draw(found, facts["model"], plot)
    return found


def _limits(
    low: int, high: int | None, precision: float, stop_when_flat: bool
) -> Limits:
    low = checked_integer(low, "low", 1)
    if high is not None and checked_integer(high, "high", 1) < low:
        raise InputError(
            f"high must be at least low. Received: low={low}, high={high}"
        )
    return Limits(
        low,
        high,
        checked_number(precision, "precision", zero_allowed=True),
        bool(stop_when_flat),
    )


class _TooSlow(Exception):
    """A size takes longer than its time-out."""


class _Search:
    """Runs measuring processes, one after the other, until the search ends.

    Args:
        limits: `Limits`; `high` is completed by the first process.
    """

    def __init__(
        self,
        job: dict[str, Any],
        limits: Limits,
        folder: pathlib.Path,
        timeout: float,
        show: bool,
    ) -> None:
        self._job = {**job, "folder": str(folder)}
        self._limits = limits
        self._folder = folder
        self._file = folder / batch_size_measuring.FILE
        self._timeout = timeout
        self._show = show
        self._shown = 0
        self._since = time.monotonic()

    def run(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Returns the facts about the model, and the measurements."""
        while True:
            facts, before = batch_size_measuring.read(self._file)
            if facts:
                high = facts["high"]
                self._limits = dataclasses.replace(self._limits, high=high)
            size = next_size(before, self._limits)
            if size is None:
                return facts, before
            crash = self._crash_of_process()
            facts, after = batch_size_measuring.read(self._file)
            if crash is not None and not facts:
                raise InputError(f"{self._job['build']}: {crash}")
            # Where smaller sizes were measured before, a new process tries
            # this one again: it needs no memory for what they have left.
            if crash is not None and len(after) == len(before):
                failed = {
                    "global_batch_size": size,
                    "examples_per_second": None,
                    "error": crash,
                }
                batch_size_measuring.append(self._file, failed)
            self._tell()

    def _crash_of_process(self) -> str | None:
        """Runs a process until it ends; returns why it crashed, or `None`."""
        self._since = time.monotonic()
        try:
            child_processes.run_job(
                "kerasmgpu.finders.batch_size_measuring",
                self._job,
                self._folder,
                float("inf"),  # `_watch` limits each size.
                watch=self._watch,
            )
        except child_processes.ChildCrashed as error:
            if error.status == -signal.SIGKILL:
                return "killed (SIGKILL), as a machine out of memory does"
            return str(error)
        except _TooSlow:
            return f"took more than {self._timeout:g} s (timeout_seconds)"
        return None

    def _watch(self) -> None:
        """Limits the time of a size."""
        self._tell()
        if time.monotonic() - self._since > self._timeout:
            raise _TooSlow

    def _tell(self) -> None:
        """Prints new measurements."""
        _, measured = batch_size_measuring.read(self._file)
        for row in measured[self._shown :]:
            self._since = time.monotonic()
            speed = row["examples_per_second"]
            told = row["error"] or f"{speed:,.0f} examples/s"
            if self._show:
                size = row["global_batch_size"]
                print(f"global batch {size:,}: {told}", flush=True)
        self._shown = len(measured)
