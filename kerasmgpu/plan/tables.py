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
    times = ("compute", "host", "input", "all_reduce", "exposed", "step")
    table = reports.table(
        f"{report['scaling']} scaling, {report['title']}",
        right=(
            *("replicas", "global\nbatch"),
            *(f"{name.replace('_', '-')}\nms" for name in times),
            *("speed-up", "efficiency"),
        ),
    )
    table.add_column("bottleneck")
    found = report.get("memory")
    if found is not None:
        table.add_column("memory", justify="right")
        table.add_column("fits", overflow="fold")
    for number, row in enumerate(report["predictions"]):
        table.add_row(
            str(row["replicas"]),
            f"{row['global_batch_size']:,}",
            *(f"{row[f'{name}_seconds'] * 1000:.1f}" for name in times),
            f"{row['speed_up']:.2f}",
            f"{row['efficiency']:.0%}",
            row["limit"],
            *([] if found is None else _memory(found[number])),
        )
    console.print(table)
    for note in report["notes"]:
        reports.say(console, f"note: {note}")
    reports.say(console, report["verdict"])


def print_mesh(report: dict[str, Any]) -> None:
    """Prints the prediction for a mesh."""
    console = reports.console()
    (row,) = report["predictions"]
    times = {
        "compute": row["compute_seconds"],
        "host": row["host_seconds"],
        "input": row["input_seconds"],
        **{f"along\n{name}": s for name, s in row["axis_seconds"].items()},
        "exposed": row["exposed_seconds"],
        "step": row["step_seconds"],
    }
    table = reports.table(
        f"mesh of keras.distribution, {report['title']}",
        "mesh",
        right=("global\nbatch", *(f"{name}\nms" for name in times), "speed-up"),
    )
    table.add_column("bottleneck")
    table.add_row(
        ", ".join(f"{name} {size}" for name, size in row["mesh"].items()),
        f"{row['global_batch_size']:,}",
        *(f"{seconds * 1000:.1f}" for seconds in times.values()),
        f"{row['speed_up']:.2f}",
        row["limit"],
    )
    console.print(table)
    for note in report["notes"]:
        reports.say(console, f"note: {note}")


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
            f"More replicas help up to {most.replicas}, the most predicted "
            f"({most.speed_up:.1f} times as fast as one). {half}"
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
