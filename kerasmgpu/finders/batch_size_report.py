"""The result of a search for a batch size: its table and its plot."""

import dataclasses
import os
from typing import Any

from kerasmgpu.commands import plots, reports
from kerasmgpu.errors import InputError
from kerasmgpu.finders.batch_size_search import knee
from kerasmgpu.replica_arithmetic import per_replica_batch_sizes


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


def result(
    facts: dict[str, Any], measured: list[dict[str, Any]], target: float
) -> BatchSizes:
    """Returns the result of a finished search.

    Raises:
        InputError: If no size trained.
    """
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
    table = []
    for row in sorted(measured, key=lambda m: m["global_batch_size"]):
        size, speed = row["global_batch_size"], row["examples_per_second"]
        table.append(
            {
                "global_batch_size": size,
                "rows_per_replica": per_replica_batch_sizes(
                    size, facts["shares"]
                )[0],
                "examples_per_second": speed,
                "step_seconds": speed and size / speed,
                "error": row["error"],
            }
        )
    return BatchSizes(
        largest, knee(measured, target), facts["replicas"], stopped_by, table
    )


_STOPPED = {
    "failed": "larger ones fail",
    "flat": "the speed no longer rises; stop_when_flat=False goes on",
    "high": "the rows of the data, or high",
}


def show(found: BatchSizes, facts: dict[str, Any], target: float) -> None:
    """Prints the table and the result."""
    console = reports.console()
    names = [path.rpartition("device:")[2] for path in facts["devices"]]
    mesh = facts["mesh"] and f", mesh {reports.mesh_text(facts['mesh'])}"
    table = reports.table(
        f"{facts['model']}, {facts['parameters']:,} parameters, on "
        f"{', '.join(names)}{mesh or ''}",
        right=("global\nbatch", "rows per\nreplica", "examples/s", "step\nms"),
    )
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
    reports.say(
        console,
        f"largest: {found.largest:,} ({_STOPPED[found.stopped_by]}); "
        f"recommended: {found.recommended:,}, the smallest with {target:.0%} of "
        "the best examples/s",
    )


def draw(found: BatchSizes, model: str, path: str | os.PathLike[str]) -> None:
    """Draws examples per second over the batch size, if matplotlib is there."""
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
