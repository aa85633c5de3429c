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
from kerasmgpu.verify.comparison import TOLERANCES, compare, first_not_finite
from kerasmgpu.verify.judging import DIFFERENT, Reference
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
        "no_float64": None,
        "partition": [],
        "unsharded": None,
        "runs": [],
    }
    if not itself.in_parity or causes.other_data(one, again):
        result["not_reproducible"] = causes.why_not_reproducible(one, again)
        return {"in_parity": False, **result}
    own = Reference(runs, one, tolerance, is_strict=tolerance is not None)
    what = "replicas" if one.facts["mesh"] is None else "devices of a mesh"
    ran: dict[int, Outcome] = {}
    for count in counts:
        entry: dict[str, Any] = {"replicas": count, "mesh": None}
        result["runs"].append(entry)
        try:
            ran[count] = runs.outcome(f"{count} {what}", num_replicas=count)
        except InputError as error:
            entry["failed"] = str(error)
            say("   failed, see below")
            continue
        facts = ran[count].facts
        entry["mesh"] = facts["mesh"]
        result["partition"] = facts["partition"]
        result["unsharded"] = facts["unsharded"]
    exact = None
    if ran and tolerance is None and own.dtype != "float64":
        exact, result["no_float64"] = _in_float64(runs, own.dtype)
    for entry in result["runs"]:
        count = entry["replicas"]
        entry["in_parity"] = False
        if count in ran:
            name = f"{count} {what}"
            entry.update(_judged(runs, own, exact, ran[count], name, count))
            entry["in_parity"] = entry["verdict"] != DIFFERENT
    return {"in_parity": all(e["in_parity"] for e in result["runs"]), **result}


def _in_float64(runs: Any, dtype: str) -> tuple[Reference | None, str | None]:
    """Runs one device in float64.

    Returns:
        The reference, or `None`, and then why the program isn't compared so.
    """
    try:
        one = runs.outcome("one device in float64", float64=True)
    except InputError as error:
        return None, str(error)
    if first_not_finite(one) is not None:
        return None, "its weights are not finite then"
    if one.facts["dtype"] == dtype:
        return None, f"layers compute in {dtype} by a type that is set by hand"
    return Reference(runs, one, TOLERANCES["float64"], float64=True), None


def _judged(
    runs: Any,
    own: Reference,
    exact: Reference | None,
    many: Outcome,
    name: str,
    count: int,
) -> dict[str, Any]:
    """Returns the entry of a run on replicas, compared in float64, too."""
    comparison = own.compare(many)
    if exact is not None:
        try:
            again = runs.outcome(
                f"{name} in float64", num_replicas=count, float64=True
            )
        except InputError as error:
            made = own.entry(comparison, many, own.verdict(comparison))
            return {**made, "float64": {"failed": str(error)}}
        fine = exact.compare(again)
        in_float64 = exact.entry(fine, again, exact.verdict(fine))
        verdict = own.verdict(comparison, (fine, in_float64["verdict"]))
        made = own.entry(comparison, many, verdict)
        if in_float64["verdict"] == DIFFERENT:
            made["causes"] = in_float64["causes"]
        return {**made, "float64": in_float64}
    return own.entry(comparison, many, own.verdict(comparison))


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
        self,
        name: str,
        num_replicas: int | None = None,
        nudge: tuple[float, int] | None = None,
        float64: bool | None = None,
    ) -> Outcome:
        """Runs the job; returns its `Outcome`.

        Args:
            nudge: Relative size, and seed, of random changes of the initial
                weights.
            float64: Whether Keras's float type is float64. Default: that of the
                job.

        Raises:
            InputError: If the run fails, with the reason in one line.
        """
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        job = {
            **self.job,
            "num_replicas": num_replicas,
            "nudge": nudge,
            "float64": self.job["float64"] if float64 is None else float64,
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
