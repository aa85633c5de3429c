"""The table, the verdict and the plot of a plan."""

import pathlib
from collections.abc import Sequence
from typing import Any

from kerasmgpu.commands import plots, reports
from kerasmgpu.memory import memory_report
from kerasmgpu.plan.published import Row
from kerasmgpu.plan.step_time import LIMITS, Prediction

_COLORS = dict(zip(LIMITS, ("tab:green", "tab:red", "tab:orange", "tab:blue")))


def print_plan(report: dict[str, Any]) -> None:
    """Prints a plan."""
    console = reports.console()
    rows = report["predictions"]
    is_mesh = "mesh" in rows[0]
    last = [] if is_mesh else ["efficiency"]
    heading = f"{report['scaling']} scaling"
    table = reports.table(
        f"{'mesh of keras.distribution' if is_mesh else heading}, {report['title']}",
        right=(
            *("mesh" if is_mesh else "replicas", "global\nbatch"),
            *(f"{name}\nms" for name in _times(rows[0])),
            *("speed-up", *last),
        ),
    )
    table.add_column("bottleneck")
    found = report.get("memory")
    if found is not None:
        table.add_column("memory", is_right=True)
        table.add_column("fits")
    for number, row in enumerate(rows):
        table.add_row(
            reports.mesh_text(row["mesh"]) if is_mesh else str(row["replicas"]),
            f"{row['global_batch_size']:,}",
            *(f"{seconds * 1000:.1f}" for seconds in _times(row).values()),
            f"{row['speed_up']:.2f}",
            *(f"{row[name]:.0%}" for name in last),
            row["limit"],
            *([] if found is None else _memory(found[number])),
        )
    console.print(table)
    for note in report["notes"]:
        reports.say(console, f"note: {note}")
    if "verdict" in report:
        reports.say(console, report["verdict"])


def _times(row: dict[str, Any]) -> dict[str, float]:
    """Maps the columns of times to a prediction's seconds."""
    if "mesh" in row:
        axes = row["axis_seconds"].items()
        between = {f"along\n{name}": seconds for name, seconds in axes}
    else:
        between = {"all-reduce": row["all_reduce_seconds"]}
    first = {
        name: row[f"{name}_seconds"] for name in ("compute", "host", "input")
    }
    last = {name: row[f"{name}_seconds"] for name in ("exposed", "step")}
    return {**first, **between, **last}


def _memory(fit: dict[str, Any]) -> list[str]:
    """Returns the cells of a result of `fitting.fits`."""
    setting = fit["fits_with"]
    fits = "no" if setting is None else setting.replace("--", "") or "yes"
    return [memory_report.size(fit["memory_bytes"]), fits]


def verdict(
    predictions: Sequence[Prediction], last: int | None, worth: float
) -> str:
    """Returns a sentence: how many replicas help, and the bottleneck beyond."""
    good = max(p.replicas for p in predictions if p.efficiency >= 0.5)
    half = f"Efficiency is at least 50 % up to {good}."
    if last is None:
        most = predictions[-1]
        return (
            f"{half} More replicas still help up to {most.replicas}, the most "
            f"predicted ({most.speed_up:.1f} times as fast as one)."
        )
    counts = [prediction.replicas for prediction in predictions]
    position = counts.index(last)
    here, beyond = predictions[position], predictions[position + 1]
    replicas = "replica" if last == 1 else "replicas"
    return (
        f"More than {last} {replicas} ({here.speed_up:.2f} times as fast as "
        f"one) don't help: each adds less than {worth:.0%} of one replica's "
        f"speed. The bottleneck is {beyond.limit}. {half}"
    )


def print_published(rows: Sequence[Row]) -> None:
    """Prints published and predicted efficiencies."""
    table = reports.table(
        "published and predicted efficiency",
        *("source", "model"),
        right=("batch", "GPUs", "published", "predicted", "error"),
    )
    for row in rows:
        table.add_row(
            row.source,
            row.model,
            str(row.rows_per_replica),
            str(row.num_replicas),
            f"{row.published:.0%}",
            f"{row.predicted:.0%}",
            f"{row.error:+.0%}",
        )
    reports.console().print(table)


def draw(report: dict[str, Any], path: pathlib.Path) -> None:
    """Draws speed-up over replicas, and the ideal; colours show bottlenecks.

    Without matplotlib, prints one line instead.
    """
    figure = plots.new_figure()
    if figure is None:
        return
    rows = report["predictions"]
    axes = figure.add_subplot()
    counts = [row["replicas"] for row in rows]
    axes.plot(counts, counts, "--", color="gray", label="ideal")
    speed_ups = [row["speed_up"] for row in rows]
    axes.plot(counts, speed_ups, "-", color="lightgray", zorder=1)
    for limit, color in _COLORS.items():
        points = [
            (row["replicas"], row["speed_up"])
            for row in rows
            if row["limit"] == limit
        ]
        if points:
            label = f"bottleneck: {limit}"
            axes.plot(*zip(*points), "o", color=color, label=label)
    plots.count_axis(axes, counts, "replicas")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("speed-up over 1 replica")
    axes.set_title(f"{report['scaling']} scaling, {report['title']}", size=8)
    axes.legend()
    plots.save(figure, path)
