"""Prints the table of a memory prediction."""

import json
from typing import Any

from kerasmgpu.commands import reports

PARTS = (
    "weights",
    "gathered",
    "slots",
    "gradients",
    "activations",
    "workspace",
    "batch",
)
"""Parts of a replica's memory, whose sum is `"total"`."""

_SETTINGS = ("shard", "shard_over", "offload", "micro_batches", "recompute")
"""`Settings` on which a replica's memory depends, in the order of texts."""


def print_memory(report: dict[str, Any]) -> None:
    """Prints the table, the notes and the verdict.

    Args:
        report: Dictionary, as `kerasmgpu.memory.memory` returns it.
    """
    console = reports.console()
    table = reports.table(
        f"{report['model']}, {report['parameters']:,} parameters, global "
        f"batch {report['global_batch_size']:,}: memory of a replica at a step's peak"
    )
    table.add_column("replicas", is_right=True)
    has_mesh = any(row["mesh"] for row in report["rows"])
    table.add_column("mesh" if has_mesh else "shard")
    parts = [*PARTS, "total", "built", "loaded"]
    if any(row["offload"] for row in report["rows"]):
        parts.append("host")
    for name in ("micro-batches", *parts):
        table.add_column(name, is_right=True)
    if report["usable"] is not None:
        table.add_column("fits")
    for row in report["rows"]:
        cells = [
            str(row["replicas"]),
            reports.mesh_text(row["mesh"]) if has_mesh else _sharded(row),
            str(row["micro_batches"]),
            *(size(row[name]) for name in parts),
        ]
        if report["usable"] is not None:
            cells.append("yes" if row["fits"] else "no")
        table.add_row(*cells)
    console.print(table)
    host = max(row["loading_host"] for row in report["rows"])
    if host:
        console.print(
            f"A file of weights takes {size(host)} on a worker's host while it "
            "is loaded.",
            markup=False,
        )
    for note in report["notes"]:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    if report["verdict"]:
        console.print(report["verdict"], markup=False, soft_wrap=True)


def _sharded(row: dict[str, Any]) -> str:
    over = f" over {row['shard_over']}" if row["shard_over"] else ""
    return f"{row['shard']}{over}{', offload' if row['offload'] else ''}"


def settings(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of a row that ask for something, as keywords."""
    return {
        name: row[name]
        for name in _SETTINGS
        if row.get(name) not in (None, "none", "layout")
    }


def flags(chosen: dict[str, Any]) -> list[str]:
    """Returns settings as flags."""
    return [f"--{name}={value}" for name, value in chosen.items()]


def advice_for_few_rows(rows: int, num_replicas: int) -> str:
    """Says what divides a batch of fewer rows than replicas; else returns ""."""
    if rows >= num_replicas:
        return ""
    return (
        f" Rows divide a batch of {rows} over as many replicas only: divide its "
        "tokens, or another inner axis, by kerasmgpu.strategy("
        f"mesh=(1, {num_replicas}), layout={{'INPUT/output': (None, 'model')}})."
    )


def to_json(report: dict[str, Any]) -> str:
    """Returns a report as JSON."""
    return json.dumps(report, indent=2, ensure_ascii=False)


def size(num_bytes: int) -> str:
    """Returns bytes as text with at most three digits and a binary unit.

    Example:

    >>> size(1536 << 20)
    '1.5 GiB'
    """
    number = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1000:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} TiB"
