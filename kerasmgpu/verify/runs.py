"""Starts the runs of a model, one after the other, and compares them."""

import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from kerasmgpu.commands.child_processes import ChildCrashed, run_job
from kerasmgpu.errors import InputError
from kerasmgpu.replica_arithmetic import check_distribution_alone
from kerasmgpu.verify import causes, child
from kerasmgpu.verify.comparison import Comparison, compare, first_not_finite
from kerasmgpu.verify.outcome import Outcome


def compare_all(
    runs: Any,
    counts: Sequence[int],
    tolerance: float | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Makes all runs and compares them.

    Args:
        runs: Object with the dictionary `job`, the settings of all runs, and
            the method `outcome`, as `Runs`.

    Returns:
        Dictionary, see `kerasmgpu.verify`.

    Raises:
        InputError: If the program does not run on one device.
    """
    runs.job["devices"] = max(counts)
    one = runs.outcome("one device")
    step = first_not_finite(one)
    if step is not None:
        raise InputError(
            f"the weights are not finite after step {step} on one device, so "
            "nothing can be compared; lower the learning rate, or look for a "
            "division by 0"
        )
    if one.facts["mesh"] is not None:
        settings = runs.job["strategy"]
        check_distribution_alone(
            settings.get("shard"), settings.get("micro_batches", 1)
        )
        runs.job["sets_distribution"] = True
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
        "unsharded": None,
        "runs": [],
    }
    if not itself.in_parity or causes.other_data(one, again):
        result["not_reproducible"] = causes.why_not_reproducible(one, again)
        return {"in_parity": False, **result}
    rounding = None
    for count in counts:
        entry: dict[str, Any] = {
            "replicas": count,
            "mesh": None,
            "in_parity": False,
        }
        result["runs"].append(entry)
        what = "replicas" if one.facts["mesh"] is None else "devices of a mesh"
        try:
            many = runs.outcome(f"{count} {what}", num_replicas=count)
        except InputError as error:
            entry["failed"] = str(error)
            say("   failed, see below")
            continue
        entry["mesh"] = many.facts["mesh"]
        result["partition"] = many.facts["partition"]
        result["unsharded"] = many.facts["unsharded"]
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


class Runs:
    """Runs of one job, each in a separate process and folder."""

    def __init__(
        self,
        folder: pathlib.Path,
        job: dict[str, Any],
        seconds: float,
        say: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self.job = {
            "start": None,
            "devices": 1,
            "sets_distribution": False,
            **job,
        }
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
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
    }


def _reason(folder: pathlib.Path, error: ChildCrashed) -> str:
    """Returns why a run crashed, and in which phase."""
    phase = child.read_phase(folder)
    if error.status is not None and error.status > 0:
        return f"{phase} ended with exit status {error.status}: {error}"
    return f"{phase} {error}"
