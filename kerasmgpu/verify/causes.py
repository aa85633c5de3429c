"""Likely causes of a difference between runs, as sentences."""

from typing import Any

from kerasmgpu.verify.comparison import Comparison
from kerasmgpu.verify.outcome import Outcome


def why_not_reproducible(one: Outcome, again: Outcome) -> str:
    """Returns the reason why two one-device runs differ."""
    first, second = one.facts["batches"], again.facts["batches"]
    different = [
        number
        for number, (a, b) in enumerate(zip(first, second), start=1)
        if a["checksum"] != b["checksum"]
    ]
    if not different and len(first) == len(second):
        return (
            "two runs get the same batches, but end with different weights: "
            "build(), a layer or train_step draws unseeded random numbers "
            "(numpy's default_rng(), tf.random's generators, os.urandom), or "
            "depends on the time or on the order of a set. Seed it."
        )
    where = "the number of batches differs"
    if different:
        where = f"batch {different[0]} is the first to differ"
    what = "other rows"
    rows = [_rows(batches) for batches in (first, second)]
    if rows[0] and rows[1] and rows[0] & rows[1]:
        what = "its rows in another order"
    return (
        f"the data set gives {what} each time ({where}). Seed its shuffle, and "
        "every random number that it draws."
    )


def _rows(batches: list[dict[str, Any]]) -> set[str] | None:
    """Returns the set of all rows' checksums, or `None` if a batch has none."""
    rows: set[str] = set()
    for batch in batches:
        if batch["row_checksums"] is None:
            return None
        rows.update(batch["row_checksums"])
    return rows


def other_data(one: Outcome, many: Outcome) -> str | None:
    """Returns why the runs' batches differ, or `None` if they are equal."""
    checksums = [
        [batch["checksum"] for batch in outcome.facts["batches"]]
        for outcome in (one, many)
    ]
    if checksums[0] == checksums[1]:
        return None
    return (
        "the data set gave other batches than on one device: it depends on "
        "the number of devices, or draws unseeded random numbers."
    )


def likely_causes(
    comparison: Comparison,
    one: Outcome,
    many: Outcome,
) -> list[str]:
    """Returns likely causes of a difference between replicas and one device."""
    data = other_data(one, many)
    if data is not None:
        return [data]
    return [
        f"{_symptom(comparison, many)}. Replicas run the program of one device, "
        "so the program depends on something else: the number of devices, "
        "replicas or workers, state in Python, a clock or files. If it does "
        "not, please report this with the file that --output writes."
    ]


def _symptom(comparison: Comparison, many: Outcome) -> str:
    """Returns what differs, if neither the data nor rounding explain it."""
    if comparison.spread:
        path = next(iter(comparison.spread))
        return (
            f"the replicas' copies of the variable {path!r} of layer "
            f"{_layer_of(path, many)!r} differ"
        )
    if comparison.is_of_logs:
        return (
            "the weights are those of one device, but a metric, a loss or a "
            "callback gives another result"
        )
    layer = comparison.first_layer()
    who = "the step" if layer is None else f"layer {layer['name']!r}"
    ratio = comparison.update_ratio
    if ratio is None or abs(ratio - 1) <= comparison.tolerance:
        return f"{who} gives another result"
    return (
        f"{who} gives another result (the first update is {ratio:.2g} times "
        "that of one device)"
    )


def _layer_of(path: str, outcome: Outcome) -> str:
    variables = outcome.facts["variables"]
    return next(v["layer"] for v in variables if v["path"] == path)
