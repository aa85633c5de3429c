"""The `RunRecord` callback: files about a run, for `kerasmgpu report`."""

import json
import math
import os
import platform
import time
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu
from kerasmgpu import atomic_files
from kerasmgpu._keras import xla_choice
from kerasmgpu._keras.layer_costs import held_bytes, layer_costs
from kerasmgpu.callbacks.json_lines import JsonLines
from kerasmgpu.callbacks.local_devices import device_names
from kerasmgpu.callbacks.measurement import MeasuringCallback, learning_rate
from kerasmgpu.engine import fit_clock
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.errors import InputError, checked_arguments
from kerasmgpu.job import workers
from kerasmgpu.partitioner.runtime.costs import Costs
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable
from kerasmgpu.stores.places import Place, checked_place, place
from kerasmgpu.stores.store_path import StorePath

_BINS_PER_DECADE = 40


class RunRecord(MeasuringCallback):
    """Writes the files that `kerasmgpu report` shows into a folder.

    - `run.json`: model, optimizer, batch, devices, strategy, versions, bytes of
      variables, and what replicas send in a step, by purpose and by layer.
    - `history.jsonl`: a line per epoch: `"epoch"` from 1, `"time"` of its end
      in seconds since 1970, `"seconds"` of its steps without compilation,
      `"wall_seconds"` since the last epoch's end, `"validation_seconds"`,
      `"learning_rate"`, the logs, and the figures of `ThroughputLogger`;
      `null` for NaN and infinity.
    - `times.jsonl`: a line per epoch: `"epoch"`, and the seconds of the first
      worker that went to each kind of work, such as `"computation"`,
      `"waiting for input"`, `"tracing and compilation"`, `"checkpoints"` and
      `"callback Name"`. They add up to the wall time since the last line; what
      comes after the last epoch is in one more line of its number.
    - `steps.jsonl`: a line per epoch, the histogram of its step times: `"edges"`
      in seconds, and `"counts"`.

    A `fit` that begins at a later epoch, as after a kill, continues the files;
    epochs that are run again replace their lines. A `fit` that begins at the
    first epoch replaces the files. Of several workers the first writes, but all
    need the callback. Put it behind callbacks that add to the logs. Its work
    per step is that of `ThroughputLogger`, and is done once where both are
    used.

    Args:
        folder: String or path-like; created where missing. Or a URL of an
            object store, such as `"s3://bucket/runs/1"`.

    Raises:
        InputError: When training begins, if the folder can't be written, or
            a file of one of these names in it is of another format.

    Example:

    ```python
    record = kerasmgpu.callbacks.RunRecord("runs/1")
    model.fit(dataset, epochs=5, callbacks=[record])
    # Then: kerasmgpu report runs/1
    ```
    """

    reads_fit_clock = True
    """The hooks of all callbacks are timed."""

    @checked_arguments
    def __init__(self, folder: str | os.PathLike[str] | StorePath) -> None:
        super().__init__()
        self.folder = str(checked_place(folder, "folder"))
        self._files: _Files | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self._files = None
        self._validation_seconds = 0.0
        if workers.is_first(self.measurement.strategy):
            self._files = _Files(place(self.folder))
            self.measurement.at_end.callback(self._write_rest)

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        super().on_epoch_begin(epoch, logs)
        if self._files is not None and not self._files.facts:
            self._files.begin(epoch)
            self._write_facts()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_test_begin(logs)
        self._validation_began = time.perf_counter()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        seconds = time.perf_counter() - self._validation_began
        self._validation_seconds += seconds

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        figures = self.measurement.finish_epoch()
        if self._files is None:
            return
        files, batches = self._files, self.measurement.batches
        rate = figures["steps_per_second"]
        record = {
            "epoch": epoch + 1,
            "time": time.time(),
            # An epoch whose only step was traced has no rate.
            "seconds": len(batches) / rate if rate > 0 else 0.0,
            "wall_seconds": files.seconds(),
            "validation_seconds": self._validation_seconds,
            "learning_rate": learning_rate(self.model),
            **(logs or {}),
            **figures,
        }
        self._validation_seconds = 0.0
        files.epoch = epoch + 1
        self._write_times(self.measurement.spent)
        files.history.append(_plain(record))
        steps = histogram(self.measurement.step_seconds)
        files.steps.append({"epoch": epoch + 1, **steps})
        rows = max((rows for rows, _ in batches), default=0)
        if rows > files.facts.get("global_batch_size", 0):
            # By now the step is traced, and the model is built.
            files.facts["global_batch_size"] = rows
            files.facts["examples_per_epoch"] = sum(r for r, _ in batches)
            written = getattr(self.model.train_function, "written", None)
            if written is not None:
                sent = Costs(written.lowered, rows).by_purpose()
                files.facts["sent_per_step"] = self._along(sent)
                files.facts["layers"] = self._layers(written, rows)
            self._write_facts()

    def _write_times(self, spent: Mapping[str, float]) -> None:
        """Writes what the time since the last line went to.

        Args:
            spent: Mapping, which divides the executions of the step.
        """
        # Without an epoch there is nothing that a `fit` could continue.
        if self._files is not None and self._files.epoch is not None:
            times = self._files.spent_since(self.measurement.clock.so_far())
            steps = times.pop(fit_clock.STEPS, 0.0)
            for kind, seconds in spent.items():
                times[kind] = times.get(kind, 0.0) + seconds
            rest = steps - sum(spent.values())
            times[fit_clock.COMPUTATION] = rest + times.get(
                fit_clock.COMPUTATION, 0.0
            )
            self._files.times.append({"epoch": self._files.epoch, **times})

    def _write_rest(self) -> None:
        """Writes the breakdown of the time after the last epoch."""
        self._write_times({})

    def _along(self, sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns what replicas send, with names of mesh axes if several."""
        names = self.measurement.strategy.axis_names
        for one in sent:
            axes = one.pop("axes")
            if names:
                one["axis"] = names[axes]
        return sent

    def _layers(self, written: Any, rows: int) -> list[dict[str, Any]]:
        """Returns the entry of `run.json` on what each layer costs."""
        return [
            {
                "layer": one.name,
                "held": one.weights + one.slots,
                "sent": one.sent.total(),
                "by": list(one.sent),
            }
            for one in layer_costs(self.model, written, rows)
            if one.whole or one.combined
        ]

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._files is not None and self._files.facts:
            self._files.facts["ended"] = time.time()
            self._write_facts()

    def _write_facts(self) -> None:
        """Writes `run.json` with the facts that are known by now."""
        files = self._files
        if files is not None:
            strategy = self.measurement.strategy
            files.facts |= {
                **_of_model(self.model),
                **_of_strategy(strategy),
                "epochs": self.params["epochs"],
                "steps_per_epoch": self.params["steps"],
                "flops_per_step": getattr(strategy, "flops_per_step", None),
            }
            files.write_facts()


class _Files:
    """Writes the files of a run; not plain data, so checkpoints leave it out.

    Attributes:
        history: `JsonLines` of the epochs.
        times: `JsonLines` of what the time went to.
        steps: `JsonLines` of the histograms.
        facts: Dictionary of `run.json`; empty until the first epoch.
        epoch: Integer, the last epoch that has ended, from 1; or `None`.
    """

    def __init__(self, folder: Place) -> None:
        self._folder = folder
        atomic_files.require_folder(folder, "folder")
        self.history = JsonLines(folder / "history.jsonl")
        self.times = JsonLines(folder / "times.jsonl")
        self.steps = JsonLines(folder / "steps.jsonl")
        self.facts: dict[str, Any] = {}
        self.epoch: int | None = None
        self._since = time.perf_counter()
        self._spent: dict[str, float] = {}

    def begin(self, epoch: int) -> None:
        """Sets the start time; drops lines of `epoch` (from 0) and later.

        If `epoch` isn't 0, the start is that of the `fit` that is continued.
        """
        started = time.time()
        path = self._folder / "run.json"
        if epoch > 0 and path.exists():
            started = _started(path)
        self.facts["started"] = started
        for lines in (self.history, self.times, self.steps):
            lines.keep(lambda record: record["epoch"] <= epoch)
        self._since = time.perf_counter()

    def seconds(self) -> float:
        """Returns seconds since the last call, or since the first epoch began."""
        before, self._since = self._since, time.perf_counter()
        return self._since - before

    def spent_since(self, spent: dict[str, float]) -> dict[str, float]:
        """Returns seconds by kind since the last call, of those until now."""
        before, self._spent = self._spent, spent
        return {
            kind: seconds - before.get(kind, 0.0)
            for kind, seconds in spent.items()
        }

    def write_facts(self) -> None:
        known = {k: v for k, v in self.facts.items() if v is not None}
        text = json.dumps(known, indent=2, default=str) + "\n"
        atomic_files.write_text(self._folder / "run.json", text)


def _started(path: Place) -> float:
    try:
        return float(json.loads(path.read_text("utf-8"))["started"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not a file of RunRecord. Move it away, or give another "
            "folder"
        ) from error


def histogram(step_seconds: np.ndarray) -> dict[str, list[Any]]:
    """Counts step times in bins of equal ratio, 40 per decade.

    The edges of all histograms are on one grid, so that they can be added.

    Returns:
        Dictionary: `"edges"`, seconds, one more than `"counts"`; both are
        empty if no step took any time.

    Example:

    >>> histogram(np.array([0.1, 0.1, 0.11]))
    {'edges': [0.1, 0.105925, 0.112202], 'counts': [2, 1]}
    """
    found = step_seconds[step_seconds > 0]
    if not found.size:
        return {"edges": [], "counts": []}
    bins = np.floor(np.log10(found) * _BINS_PER_DECADE + 1e-9).astype(int)
    first, last = int(bins.min()), int(bins.max())
    edges = range(first, last + 2)
    return {
        "edges": [float(f"{10 ** (n / _BINS_PER_DECADE):.6g}") for n in edges],
        "counts": np.bincount(bins - first).tolist(),
    }


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """Drops entries that are no numbers; NaN and infinity become `None`."""
    plain: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, int):
            plain[name] = value
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        plain[name] = number if math.isfinite(number) else None
    return plain


def _of_model(model: keras.Model) -> dict[str, Any]:
    """Returns the entries of `run.json` about a model and its optimizer."""
    optimizer = model.optimizer
    rate = optimizer.get_config().get("learning_rate")
    if isinstance(rate, dict):  # A schedule.
        arguments = [f"{k}={v}" for k, v in rate.get("config", {}).items()]
        rate = f"{rate.get('class_name')}({', '.join(arguments)})"
    elif isinstance(rate, float):  # A float32 has seven digits.
        rate = float(f"{rate:.7g}")
    facts: dict[str, Any] = {
        "model": model.name,
        "precision": model.dtype_policy.name,
        "xla": xla_choice.uses_xla(model),
        "steps_per_execution": model.steps_per_execution,
        "optimizer": {"name": type(optimizer).__name__, "learning_rate": rate},
    }
    if model.built:
        known = {id(v) for v in [*model.weights, *optimizer.variables]}
        others = [v for v in model.variables if id(v) not in known]
        trainable = sum(math.prod(v.shape) for v in model.trainable_weights)
        facts["parameters"] = {
            "trainable": trainable,
            "all": model.count_params(),
        }
        facts["state_bytes"] = {
            "weights": _bytes(model.weights),
            "slots": _bytes(optimizer.variables),
            "other": _bytes([*others, *model.metrics_variables]),
        }
        if on_host := _bytes(optimizer.variables, is_offloaded=True):
            facts["state_bytes"]["slots on the host"] = on_host
    return facts


def _bytes(variables: list[Any], is_offloaded: bool = False) -> int:
    """Sums variables' bytes on a replica; of sharded ones the largest part.

    Args:
        variables: Variables of Keras.
        is_offloaded: Whether to sum those in host memory, or all others.
    """
    total = 0
    for variable in variables:
        held = variable.value
        is_sharded = isinstance(held, ShardedVariable)
        if (is_sharded and held.is_offloaded) == is_offloaded:
            total += held_bytes(variable)
    return total


def _of_strategy(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Returns the entries of `run.json` on devices, strategy and versions."""
    name = type(strategy).__name__
    arguments: dict[str, Any] = {"name": name.lstrip("_")}
    if is_ours(strategy):
        for name, value in vars(strategy.settings).items():
            arguments[name] = getattr(value, "__name__", value)
        if layouts := strategy.layouts:
            arguments["mesh"] = layouts.mesh
            arguments["row_shares"] = layouts.num_row_shares
            if layouts.divides_variables:
                arguments["shard"] = "layout"
    return {
        "replicas": strategy.num_replicas_in_sync,
        "workers": workers.count(strategy),
        "devices": device_names(strategy),
        "strategy": arguments,
        "versions": {
            "kerasmgpu": kerasmgpu.__version__,
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "python": platform.python_version(),
            "system": platform.platform(),
        },
    }
