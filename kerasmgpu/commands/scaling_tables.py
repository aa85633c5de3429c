"""The table and the plot of a scaling report."""

import pathlib
from typing import Any

from kerasmgpu import replica_arithmetic
from kerasmgpu.commands import plots, reports

PUBLISHED: dict[str, dict[str, Any]] = {
    "autoencoder": {
        "devices": "GeForce GTX 970",
        "settings": "n-10-5-10-n on MovieLens-1M for 10,000 steps: compare "
        "with --flagfile=recipes/autoencoder/published.flags --dataset=ml-1m",
        # GPUs: seconds, loss.
        "rows": {
            1: (857.74, 0.02809),
            2: (562.51, 0.02831),
            3: (384.39, 0.02620),
            4: (263.56, 0.02584),
        },
    }
}
"""Maps a recipe to published measurements, shown with the measured ones."""

SPEED_UP = (
    "speed-up: by the examples/s of the median epoch; time (s): the sum over "
    "all epochs, slow ones too"
)

SHARED_CORES = (
    "These replicas are logical CPU devices, which share the same cores: no "
    "speed-up can be expected, only that everything works."
)


def published_speed_up(recipe: str, replicas: int) -> float | None:
    """Returns the published speed-up on `replicas` replicas, or `None`."""
    rows = PUBLISHED.get(recipe, {"rows": {}})["rows"]
    if replicas not in rows:
        return None
    return replica_arithmetic.speed_up(1 / rows[replicas][0], 1 / rows[1][0])


def print_tables(report: dict[str, Any]) -> None:
    """Prints a table of the runs, with published measurements if any."""
    console = reports.console()
    published = PUBLISHED.get(report["recipe"])
    figures = ("time (s)", "loss", "speed-up", "efficiency")
    table = reports.table(
        _title(report),
        right=(
            "CPU devices" if report["on_logical_cpu_devices"] else "GPUs",
            *(*figures, "examples/s\nper replica"),
            *(f"{name}*" for name in figures if published),
        ),
    )
    for run in report["runs"]:
        table.add_row(
            str(run["replicas"]),
            *_measured(run),
            *(_published(report["recipe"], run["replicas"]) * bool(published)),
        )
    console.print(table)
    console.print(SPEED_UP)
    if published:
        console.print(
            f"* published, on {published['devices']}; {published['settings']}"
        )
    for run in report["runs"]:
        if "failed" in run:
            replicas = "replica" if run["replicas"] == 1 else "replicas"
            reports.say(
                console,
                f"{run['replicas']} {replicas} failed: {run['failed']} "
                f"(see {run['log']})",
            )
    if report["on_logical_cpu_devices"]:
        console.print(SHARED_CORES)


def draw(report: dict[str, Any], path: pathlib.Path) -> None:
    """Draws measured, ideal and published speed-up over replicas.

    Without matplotlib or a successful run, prints one line instead.
    """
    runs = [run for run in report["runs"] if "speed_up" in run]
    if not runs:
        print("no plot: every run failed")
        return
    figure = plots.new_figure()
    if figure is None:
        return
    axes = figure.add_subplot()
    counts = [run["replicas"] for run in runs]
    ideal = [count / counts[0] for count in counts]
    axes.plot(counts, ideal, "--", color="gray", label="ideal")
    measured = [run["speed_up"] for run in runs]
    axes.plot(counts, measured, "o-", label=_devices(runs[-1]))
    rows = PUBLISHED.get(report["recipe"])
    if rows and counts[0] == 1:
        there = list(rows["rows"])
        axes.plot(
            there,
            [published_speed_up(report["recipe"], count) for count in there],
            "s:",
            label=f"published, {rows['devices']}",
        )
    plots.count_axis(axes, counts, "replicas")
    axes.set_ylabel(f"speed-up over {counts[0]} replica(s)")
    axes.set_title(report["recipe"])
    axes.legend()
    plots.save(figure, path)


def _title(report: dict[str, Any]) -> str:
    good = [run for run in report["runs"] if "result" in run]
    devices = f", on {_devices(good[-1])}" if good else ""
    return report["recipe"] + devices


def _devices(run: dict[str, Any]) -> str:
    return ", ".join(run["result"]["devices"])


def _measured(run: dict[str, Any]) -> tuple[str, ...]:
    if "failed" in run:
        return ("failed", "", "", "", "")
    result = run["result"]
    return (
        f"{result['seconds']:.2f}",
        f"{result['loss']:.5f}",
        f"{run['speed_up']:.2f}",
        f"{run['efficiency']:.0%}",
        f"{result['examples_per_second_per_replica']:,.0f}",
    )


def _published(recipe: str, replicas: int) -> tuple[str, ...]:
    speed_up = published_speed_up(recipe, replicas)
    if speed_up is None:
        return ("–",) * 4
    seconds, loss = PUBLISHED[recipe]["rows"][replicas]
    return (
        f"{seconds:.2f}",
        f"{loss:.5f}",
        f"{speed_up:.2f}",
        f"{replica_arithmetic.efficiency(speed_up, replicas):.0%}",
    )
