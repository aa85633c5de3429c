"""Makes the runs of a model, one after the other, and compares them."""

from collections.abc import Callable, Sequence
from typing import Any

from kerasmgpu.distances import TOLERANCES
from kerasmgpu.errors import InputError
from kerasmgpu.strategy_settings import Settings, check_distribution_alone
from kerasmgpu.verify import causes
from kerasmgpu.verify.comparison import first_not_finite
from kerasmgpu.verify.judging import DIFFERENT, Reference
from kerasmgpu.verify.outcome import Outcome
from kerasmgpu.verify.runs import Runs


def compare_all(
    runs: Runs,
    counts: Sequence[int],
    tolerance: float | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Makes all runs and compares them.

    Args:
        runs: `Runs`, with the settings of all of them.
        counts: Sequence of integers, the numbers of replicas.
        tolerance: Float, the largest W that counts as parity, or `None`.
        say: Function called with each line about the progress.

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
        check_distribution_alone(Settings(**runs.job["strategy"]))
        runs.job["sets_distribution"] = True
    runs.job["start"] = str(one.folder / "start.npz")
    own = Reference(runs, one, tolerance, is_strict=tolerance is not None)
    result: dict[str, Any] = {
        "build": runs.job["build"],
        "model": one.facts["model"],
        "dtype": one.facts["dtype"],
        "tolerance": own.tolerance,
        "batch_rows": [batch["rows"] for batch in one.facts["batches"]],
        "not_reproducible": None,
        "no_float64": None,
        "partition": [],
        "unsharded": None,
        "runs": [],
    }
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
    if not all(own.compare(many).in_parity for many in ran.values()):
        # Is it one device itself that differs from run to run?
        again = runs.outcome("one device again")
        itself = own.compare(again)
        if not itself.in_parity or causes.other_data(one, again):
            result["not_reproducible"] = causes.why_not_reproducible(one, again)
            return {"in_parity": False, **result, "runs": [], "partition": []}
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


def _in_float64(runs: Runs, dtype: str) -> tuple[Reference | None, str | None]:
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
    runs: Runs,
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
