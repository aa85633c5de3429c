"""The `ThroughputLogger` callback: examples per second of every epoch."""

import math
import os
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

import keras

from kerasmgpu.callbacks import json_lines
from kerasmgpu.callbacks.json_lines import JsonLines
from kerasmgpu.callbacks.local_devices import device_names
from kerasmgpu.callbacks.measurement import MeasuringCallback
from kerasmgpu.errors import (
    InputError,
    checked_arguments,
    checked_number,
    listed,
)
from kerasmgpu.job import workers
from kerasmgpu.stores.places import checked_place
from kerasmgpu.stores.store_path import StorePath

_FILES = ("throughput.jsonl", "history.jsonl")
_IN_THE_BAR = ("examples_per_second", "input_wait_share")
"""Figures in Keras's progress bar: the speed, and the wait for input."""


class ThroughputLogger(MeasuringCallback):
    """Adds the throughput of each epoch to Keras's logs.

    - `examples_per_second`: over all replicas.
    - `examples_per_second_per_replica`: the same, divided by the number of
      replicas.
    - `steps_per_second`: batches per second.
    - `step_seconds_median`, `step_seconds_p95`: seconds from one step to the
      next.
    - `input_wait_share`: share of the time, 0 to 1, spent waiting for the next
      batch.
    - `flops_per_second`: model FLOPs over all replicas, under kerasmgpu's
      strategies, if the step's can be counted (`docs/flops.md`).
    - `mfu`: model FLOPs utilisation, 0 to 1: the share of `flops_per_second`
      in the devices' peak, on GPUs whose peak is known.

    Put it first in the list of callbacks: those after it see the figures. It
    works under any strategy and without one.

    Keras's progress bar and its line per epoch show all logs. Where `fit`
    prints one of these (`verbose` is not 0), only `examples_per_second` and
    `input_wait_share` go into the logs, and are shown short, as in
    "examples/s: 2,478 - input wait: 2%"; the other figures go into the history
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
        path: String, path-like or URL, file to append one line of JSON per epoch
            to: the figures, the number of replicas, the names of their devices,
            the bytes that a step sums over them and the FLOPs of a step (`null`
            if no kerasmgpu strategy counts them). `None` for no file; with
            several workers, the first writes. An epoch that is run again after
            a kill gets another line. Defaults to `None`.

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

    @checked_arguments
    def __init__(
        self, path: str | os.PathLike[str] | StorePath | None = None
    ) -> None:
        super().__init__()
        self.path = None if path is None else str(checked_place(path, "path"))
        self._lines: JsonLines | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        strategy = self.measurement.strategy
        self._devices = device_names(strategy)
        self._lines = None
        if self.path is not None and workers.is_first(strategy):
            self._lines = JsonLines(self.path)

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        measurement = self.measurement
        figures = measurement.finish_epoch()
        hand_on(self, figures, logs, _IN_THE_BAR)
        if self._lines is not None:
            self._lines.append(
                {
                    "epoch": epoch,
                    "replicas": measurement.num_replicas,
                    "devices": self._devices,
                    "steps": len(measurement.batches),
                    "examples": sum(rows for rows, _ in measurement.batches),
                    "reduced_bytes_per_step": getattr(
                        measurement.strategy, "reduced_bytes_per_step", None
                    ),
                    "flops_per_step": getattr(
                        measurement.strategy, "flops_per_step", None
                    ),
                    **figures,
                }
            )


def hand_on(
    callback: keras.callbacks.Callback,
    figures: dict[str, Any],
    logs: dict[str, Any] | None,
    in_the_bar: Sequence[str] = (),
) -> None:
    """Puts the progress bar's figures into the logs, the others into the history.

    Without output (`verbose=0`), all go into the logs.
    """
    if logs is None:
        return
    if not callback.params.get("verbose"):
        logs.update(figures)
        return
    logs.update((name, figures[name]) for name in in_the_bar)
    history = getattr(callback.model, "history", None)
    # All callbacks of a `fit` share one `params`, so this shows that the
    # history is of this `fit` and not of an earlier one.
    if history is not None and history.params is callback.params:
        for name, value in figures.items():
            if name not in in_the_bar:
                history.history.setdefault(name, []).append(value)


def median_speed(model: keras.Model, *data: Any, **arguments: Any) -> float:
    """Trains, and returns the examples per second of the median epoch.

    Args:
        **arguments: Keywords of `fit`, but `shuffle`, `verbose` and `callbacks`.

    Returns:
        Float; NaN if all steps of all epochs were traced.
    """
    throughput = ThroughputLogger()
    history = model.fit(
        *data, shuffle=False, verbose=0, callbacks=[throughput], **arguments
    ).history["examples_per_second"]
    # An epoch whose steps were all traced has NaN.
    return statistics.median([v for v in history if v > 0] or [math.nan])


def rate_of_one_replica(given: float | str | os.PathLike[str]) -> float:
    """Returns examples per second of one replica.

    Args:
        given: Float, the rate. Or string or path-like: the file of a
            `ThroughputLogger`, a recipe's `history.jsonl`, or a folder with
            one of these, of a run on one replica. The median of its epochs'
            rates is returned.

    Raises:
        InputError: If `given` can't be read, or is a run on several replicas
            or without a measured epoch.
    """
    if not isinstance(given, (str, os.PathLike)):
        return checked_number(given, "one_replica")
    path = pathlib.Path(given)
    if path.is_dir():
        found = [path / name for name in _FILES if (path / name).is_file()]
        if not found:
            raise InputError(
                f"one_replica={path} is a folder without {' or '.join(_FILES)}."
                " Give the folder of a run on one replica, or its file"
            )
        path = found[0]
    rates = []
    for record in _records(path):
        rate = record.get("examples_per_second")
        if not rate:
            continue
        own = record.get("examples_per_second_per_replica")
        replicas = record.get("replicas", round(rate / own) if own else None)
        if replicas != 1:
            raise InputError(
                f"one_replica={path} must be a run on one replica. Received: "
                f"a run on {replicas or 'an unknown number of'} replicas"
            )
        rates.append(rate)
    if not rates:
        raise InputError(
            f"one_replica={path} has no epoch with examples_per_second; train "
            "one replica for two epochs with ThroughputLogger"
        )
    return statistics.median(rates)


def _records(path: pathlib.Path) -> list[dict[str, Any]]:
    try:
        records, damaged = json_lines.parse(path.read_text("utf-8"))
        if not damaged:
            return records
        problem = f"no JSON object in line {listed(damaged, 5)}"
    except (OSError, ValueError) as error:
        problem = str(error)
    raise InputError(
        f"one_replica={path} can't be read as JSON lines of a run: {problem}"
    )
