"""Starts the runs of a model, one after the other, and compares them."""

import json
import math
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kerasmgpu.commands.child_processes import ChildCrashed, run_job
from kerasmgpu.commands.references import reference
from kerasmgpu.errors import (
    InputError,
    checked_choice,
    checked_counts,
    checked_integer,
    checked_number,
)
from kerasmgpu.replica_arithmetic import SHARDS
from kerasmgpu.verify import causes, child, parity_report
from kerasmgpu.verify.comparison import Comparison, compare, first_not_finite
from kerasmgpu.verify.outcome import Outcome, save_arrays

_RUNNING = "KERASMGPU_VERIFY_RUN"
"""Environment variable that marks the process of a run."""


def run(
    build: Callable[[], Any] | str,
    data: Any,
    replica_counts: Iterable[int | str],
    *,
    steps: int,
    global_batch_size: int | None,
    tolerance: float | None,
    float64: bool,
    shard: str | None,
    micro_batches: int,
    seed: int,
    timeout_seconds: float,
    show: bool,
) -> dict[str, Any]:
    """Trains twice on one device, then on replicas; see `kerasmgpu.verify`."""
    if _RUNNING in os.environ:
        raise InputError(
            "kerasmgpu.verify was called while the module of `build` was "
            'imported; put the call under `if __name__ == "__main__":`'
        )
    counts = checked_counts(replica_counts, minimum=2)
    if global_batch_size is not None:
        checked_integer(global_batch_size, "global_batch_size", minimum=1)
    if tolerance is not None:
        tolerance = checked_number(tolerance, "tolerance")
    seconds = checked_number(timeout_seconds, "timeout_seconds")
    job = {
        "build": reference(build, "build"),
        "steps": checked_integer(steps, "steps", minimum=1),
        "global_batch_size": global_batch_size,
        "float64": bool(float64),
        "shard": shard and checked_choice(shard, "shard", SHARDS),
        "micro_batches": checked_integer(
            micro_batches, "micro_batches", minimum=1
        ),
        "seed": checked_integer(seed, "seed", minimum=0),
        # Absolute, since '' is the parent's working directory.
        "sys_path": [os.path.abspath(path) for path in sys.path],
    }
    say = _say if show else _say_nothing
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-verify-") as name:
        folder = pathlib.Path(name)
        job.update(_data_of(data, folder))
        runs = _Runs(folder, job, seconds, say)
        result = compare_all(runs, counts, tolerance, say)
    if show:
        parity_report.print_tables(result)
    return result


def _data_of(data: Any, folder: pathlib.Path) -> dict[str, str | None]:
    """Returns the job's entries for data: a reference, or a file of arrays."""
    if isinstance(data, np.ndarray):
        data = (data,)
    if not isinstance(data, tuple):
        name = None if data is None else reference(data, "data")
        return {"data": name, "data_file": None}
    if not all(isinstance(array, np.ndarray) for array in data):
        raise InputError(
            "data must be a tuple of NumPy arrays, or a function that returns "
            "the data, because other processes use them. Received: data of "
            f"{', '.join(type(item).__name__ for item in data) or 'nothing'}"
        )
    path = folder / "data.npz"
    save_arrays(path, data)
    return {"data": None, "data_file": str(path)}


def compare_all(
    runs: Any,
    counts: Iterable[int],
    tolerance: float | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Makes all runs and compares them.

    Args:
        runs: Object with the dictionary `job`, the settings of all runs, and
            the method `outcome`, as `_Runs`.
        counts: List of integers, numbers of replicas.
        tolerance: Float, or `None`; see `comparison.compare`.
        say: Function that prints a line of progress.

    Returns:
        Dictionary, see `kerasmgpu.verify`.

    Raises:
        InputError: If the program does not run on one device.
    """
    one = runs.outcome("one device")
    step = first_not_finite(one)
    if step is not None:
        raise InputError(
            f"the weights are not finite after step {step} on one device, so "
            "nothing can be compared; lower the learning rate, or look for a "
            "division by 0"
        )
    runs.job["start"] = str(one.folder / "start.npz")
    again = runs.outcome("one device again")
    itself = compare(one, again, tolerance)
    result: dict[str, Any] = {
        "build": runs.job["build"],
        "model": one.facts["model"],
        "dtype": one.facts["dtype"],
        "tolerance": itself.tolerance,
        "batch_rows": [batch["rows"] for batch in one.facts["batches"]],
        "not_reproducible": None,
        "partition": [],
        "runs": [],
    }
    if not itself.in_parity or causes.other_data(one, again):
        result["not_reproducible"] = causes.why_not_reproducible(one, again)
        return {"in_parity": False, **result}
    rounding = None
    for count in counts:
        entry: dict[str, Any] = {"replicas": count, "in_parity": False}
        result["runs"].append(entry)
        try:
            many = runs.outcome(f"{count} replicas", num_replicas=count)
        except InputError as error:
            entry["failed"] = str(error)
            say("   failed, see below")
            continue
        result["partition"] = many.facts["partition"]
        comparison = compare(one, many, tolerance)
        if not comparison.in_parity and rounding is None:
            aside = runs.outcome(
                "one device, started one rounding error aside", perturb=True
            )
            rounding = compare(one, aside, tolerance)
        entry.update(_entry(comparison, one, many, rounding))
    return {"in_parity": all(e["in_parity"] for e in result["runs"]), **result}


def _entry(
    comparison: Comparison,
    one: Outcome,
    many: Outcome,
    rounding: Comparison | None,
) -> dict[str, Any]:
    """Returns a run's JSON-serialisable entry of the report."""
    entry: dict[str, Any] = {
        "in_parity": comparison.in_parity,
        "checks": {
            name: {"distance": value, "tolerance": limit}
            for name, (value, limit) in comparison.checks.items()
        },
        "metrics": comparison.metrics,
        "first_step": comparison.first_step,
        "causes": [],
    }
    if not comparison.in_parity:
        first = comparison.first_layer()
        entry["first_layer"] = first and first["name"]
        entry["layers"] = comparison.layers
        entry["update_ratio"] = comparison.update_ratio
        entry["loss_ratio"] = comparison.loss_ratio
        entry["causes"] = causes.likely_causes(comparison, one, many, rounding)
    return entry


class _Runs:
    """Runs of one job, each in a separate process and folder.

    Args:
        folder: `pathlib.Path`, parent of the runs' folders.
        job: Dictionary, the settings of all runs.
        seconds: Float, time-out of each run.
        say: Function that prints a line of progress.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        job: dict[str, Any],
        seconds: float,
        say: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self.job = {"start": None, **job}
        self.seconds = seconds
        self.say = say
        self.count = 0

    def outcome(
        self, name: str, num_replicas: int | None = None, perturb: bool = False
    ) -> Outcome:
        """Runs the job; returns its `Outcome`.

        Raises:
            InputError: If the run fails, with the reason in one line.
        """
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        job = {
            **self.job,
            "num_replicas": num_replicas,
            "perturb": perturb,
            "folder": str(folder),
        }
        self.say(f"── {name} …")
        begin = time.monotonic()
        try:
            facts = run_job(
                "kerasmgpu.verify.child",
                job,
                folder,
                self.seconds,
                _environment(),
            )
        except ChildCrashed as error:
            raise InputError(_reason(folder, error)) from None
        self.say(f"   {time.monotonic() - begin:.1f} s")
        return Outcome(folder, facts)


def _environment() -> dict[str, str]:
    """Returns the environment variables of a run."""
    return {
        _RUNNING: "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
    }


def _reason(folder: pathlib.Path, error: ChildCrashed) -> str:
    """Returns why a run crashed, and in which phase."""
    phase = child.read_phase(folder)
    if error.status is not None and error.status > 0:
        return f"{phase} ended with exit status {error.status}: {error}"
    return f"{phase} {error}"


def to_json(result: dict[str, Any]) -> str:
    """Returns the report as JSON; NaN and infinity become strings."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return value

    return json.dumps(plain(result), indent=2) + "\n"


def _say(line: str) -> None:
    print(line, flush=True)


def _say_nothing(line: str) -> None:
    pass
