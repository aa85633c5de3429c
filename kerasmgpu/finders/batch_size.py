"""Finds the batch size: measures in child processes, and shows the table."""

import dataclasses
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from rich.table import Table

from kerasmgpu.commands import child_processes, plots, references, reports
from kerasmgpu.commands.command_line import LOADING
from kerasmgpu.errors import (
    InputError,
    checked_choice,
    checked_integer,
    checked_number,
)
from kerasmgpu.finders import batch_size_measuring
from kerasmgpu.finders.batch_size_search import Limits, knee, next_size
from kerasmgpu.job import cluster
from kerasmgpu.replica_arithmetic import SHARDS, per_replica_batch_sizes

_RUNNING = "KERASMGPU_FIND_BATCH_SIZE"
"""Environment variable that marks a measuring process."""


@dataclasses.dataclass(frozen=True)
class BatchSizes:
    """Result of `find_batch_size`.

    Attributes:
        largest: Integer, the largest global batch size that trained.
        recommended: Integer, the smallest global batch size that reaches
            `target_efficiency` of the best examples per second.
        num_replicas: Integer.
        stopped_by: String, why there is no larger size: `"failed"` (one ran
            out of memory, or failed otherwise), `"flat"` (the speed no longer
            rises) or `"high"` (the given one, or the rows of the data).
        table: List of dictionaries, smallest size first: `global_batch_size`,
            `rows_per_replica` (of the first replica), `examples_per_second`,
            `step_seconds`, and `error`, a string where the size failed.
    """

    largest: int
    recommended: int
    num_replicas: int
    stopped_by: str
    table: list[dict[str, Any]]


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
            `"embeddings"`. Default: nothing.
        micro_batches: Integer, parts in which a replica works through its
            rows. Defaults to 1.
        low: Integer, the first global batch size; larger ones are multiples
            of it. If it fails, it is halved. Defaults to 8.
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
    if _RUNNING in os.environ:
        raise InputError(
            "kerasmgpu.find_batch_size was called while the module of `build` "
            'was imported; put the call under `if __name__ == "__main__":`'
        )
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
    job = {
        "build": references.reference(build, "build"),
        "data": None if data is None else references.reference(data, "data"),
        "strategy": {
            "num_replicas": num_replicas,
            "virtual_devices": virtual_devices,
            "shard": shard and checked_choice(shard, "shard", SHARDS),
            "micro_batches": checked_integer(micro_batches, "micro_batches", 1),
        },
        "limits": dataclasses.asdict(limits),
        "seconds": checked_number(seconds, "seconds"),
        # Absolute, since '' is the parent's working directory.
        "sys_path": [os.path.abspath(path) for path in sys.path],
    }
    timeout = checked_number(timeout_seconds, "timeout_seconds")
    if plot is not None:
        plots.tell_if_missing()
    if show:
        print(f"measuring {job['build']}: {LOADING}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-batch-size-") as folder:
        search = _Search(job, limits, pathlib.Path(folder), timeout, show)
        facts, measured = search.run()
    found = _result(facts, measured, target)
    if show:
        _print(found, facts, target)
    if plot is not None:
        _draw(found, facts["model"], plot)
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
        job: Dictionary, the settings.
        limits: `Limits`; `high` is completed by the first process.
        folder: `pathlib.Path` of the processes' files.
        timeout: Float, seconds for one size.
        show: Boolean, whether to print each size.
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
                {_RUNNING: "1"},
                self._watch,
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


def _result(
    facts: dict[str, Any], measured: list[dict[str, Any]], target: float
) -> BatchSizes:
    fitting = [m for m in measured if m["error"] is None]
    if not fitting:
        raise InputError(
            f"a global batch of one row does not train: {measured[-1]['error']}"
        )
    largest = max(m["global_batch_size"] for m in fitting)
    stopped_by = "flat"
    if len(fitting) < len(measured):
        stopped_by = "failed"
    elif largest == facts["high"]:
        stopped_by = "high"
    replicas = facts["replicas"]
    table = []
    for row in sorted(measured, key=lambda m: m["global_batch_size"]):
        size, speed = row["global_batch_size"], row["examples_per_second"]
        table.append(
            {
                "global_batch_size": size,
                "rows_per_replica": per_replica_batch_sizes(size, replicas)[0],
                "examples_per_second": speed,
                "step_seconds": speed and size / speed,
                "error": row["error"],
            }
        )
    return BatchSizes(
        largest, knee(measured, target), replicas, stopped_by, table
    )


_STOPPED = {
    "failed": "larger ones fail",
    "flat": "the speed no longer rises; stop_when_flat=False goes on",
    "high": "the rows of the data, or high",
}


def _print(found: BatchSizes, facts: dict[str, Any], target: float) -> None:
    console = reports.console()
    names = [path.rpartition("device:")[2] for path in facts["devices"]]
    table = Table(
        title=f"{facts['model']}, {facts['parameters']:,} parameters, on "
        f"{', '.join(names)}"
    )
    for name in (
        "global\nbatch",
        "rows per\nreplica",
        "examples/s",
        "step\nms",
    ):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in found.table:
        size, speed = row["global_batch_size"], row["examples_per_second"]
        note = "recommended" if size == found.recommended else ""
        table.add_row(
            f"{size:,}",
            f"{row['rows_per_replica']:,}",
            "" if speed is None else f"{speed:,.0f}",
            "" if speed is None else f"{row['step_seconds'] * 1000:.1f}",
            note if row["error"] is None else "failed",
        )
    console.print(table)
    console.print(
        f"largest: {found.largest:,} ({_STOPPED[found.stopped_by]}); "
        f"recommended: {found.recommended:,}, the smallest with {target:.0%} of "
        "the best examples/s",
        markup=False,
        soft_wrap=True,
    )


def _draw(found: BatchSizes, model: str, path: str | os.PathLike[str]) -> None:
    figure = plots.new_figure()
    if figure is None:
        return
    fitting = [row for row in found.table if row["error"] is None]
    sizes = [row["global_batch_size"] for row in fitting]
    axes = figure.add_subplot()
    speeds = [row["examples_per_second"] for row in fitting]
    plots.line(axes, sizes, speeds)
    axes.axvline(
        found.recommended,
        linestyle="--",
        color="gray",
        label=f"recommended: {found.recommended:,}",
    )
    plots.count_axis(axes, sizes, "global batch")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("examples/s")
    axes.set_title(f"{model}, {found.num_replicas} replicas", size=8)
    axes.legend()
    plots.save(figure, path)
