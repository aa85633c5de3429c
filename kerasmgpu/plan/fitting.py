"""Whether a step fits a device's memory, and the setting that makes it fit."""

from collections.abc import Sequence
from typing import Any

from kerasmgpu.memory import memory_prediction, memory_report
from kerasmgpu.memory.memory_report import size

_SHARDS = ("none", "optimizer", "weights")


def fits(
    module: str,
    device_memory: str,
    predictions: Sequence[dict[str, Any]],
    is_weak: bool,
    replicas_per_machine: int,
) -> list[dict[str, Any]]:
    """Predicts the memory of a replica for each number of replicas.

    Args:
        module: String, `"module:function"`, as for `kerasmgpu memory`.
        is_weak: Boolean, whether every replica has as many rows, of which the
            prediction for one replica has the number.
        replicas_per_machine: Integer; more replicas are a process each.

    Returns:
        A dictionary for each prediction: `replicas`; `memory_bytes` of the step
        as it is; `fits_with`, the cheapest flags that make it fit (`""`: it
        fits as it is), or `None`; `least_bytes` of all settings tried.
    """
    rows = predictions[0]["global_batch_size"]
    counted = memory_prediction.run(
        module,
        replicas=[row["replicas"] for row in predictions],
        shard=_SHARDS,
        device_memory=device_memory,
        replicas_per_machine=replicas_per_machine,
        show=False,
        until_it_fits=True,
        **{"batch_size_per_replica" if is_weak else "global_batch_size": rows},
    )["rows"]
    # One replica has nobody to divide variables with.
    counted = [
        row for row in counted if row["replicas"] > 1 or row["shard"] == "none"
    ]
    return [
        _fit([row for row in counted if row["replicas"] == one["replicas"]])
        for one in predictions
    ]


def _fit(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    best = min(
        (row for row in rows if row["fits"]),
        key=memory_prediction.cost,
        default=None,
    )
    (plain,) = (row for row in rows if row["shard"] == "none")
    return {
        "replicas": plain["replicas"],
        "memory_bytes": plain["whole_total"],
        "fits_with": None if best is None else _flags(best),
        "least_bytes": min(row["total"] for row in rows),
    }


def _flags(row: dict[str, Any]) -> str:
    chosen = memory_report.settings(row)
    if row["micro_batches"] == 1:
        del chosen["micro_batches"]
    return " ".join(memory_report.flags(chosen))


def verdict(
    found: Sequence[dict[str, Any]], recommended: int, device_memory: str
) -> str:
    """Returns a sentence: whether the recommended number of replicas fits."""
    (fit,) = (fit for fit in found if fit["replicas"] == recommended)
    replicas = f"{recommended} replica{'s' if recommended > 1 else ''}"
    needed = size(fit["memory_bytes"])
    if fit["fits_with"] == "":
        return (
            f"{device_memory}: a step on {replicas} fits, with {needed} each."
        )
    if fit["fits_with"] is not None:
        return (
            f"{device_memory}: a step on {replicas} needs {needed} each, which "
            f"does not fit; it fits with {fit['fits_with']}, whose time is not "
            "predicted."
        )
    others = [str(f["replicas"]) for f in found if f["fits_with"] is not None]
    return (
        f"{device_memory}: a step on {replicas} needs {needed} each, which does "
        f"not fit, nor does {size(fit['least_bytes'])}, the least of "
        "--micro_batches and --shard that were tried. "
        + (
            f"Numbers that can fit: {', '.join(others)}."
            if others
            else "No number fits; use fewer rows, or see kerasmgpu memory."
        )
    )
