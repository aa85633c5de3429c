"""The sections of learning curves, speed and step times."""

import math
from collections.abc import Sequence

from kerasmgpu.report import figures, units
from kerasmgpu.report.html_parts import legend, missing, table
from kerasmgpu.report.run_files import Run
from kerasmgpu.report.svg_plots import Line, plot

_NO_CURVES = {
    "epoch",
    "time",
    "seconds",
    "wall_seconds",
    "validation_seconds",
    "examples_per_second",
    "examples_per_second_per_replica",
    "steps_per_second",
    "step_seconds_median",
    "step_seconds_p95",
    "input_wait_share",
    "slowest_worker",
    "slowest_worker_step_seconds",
    "fastest_worker_step_seconds",
    "mfu",
    "flops_per_second",
}
"""Figures of an epoch that are no learning curves: of time and speed."""

_SPEEDS = (
    ("examples_per_second", "Examples per second", units.plain),
    (
        "examples_per_second_per_replica",
        "Examples per second and replica",
        units.plain,
    ),
    ("input_wait_share", "Time spent waiting for input", units.percent),
    ("mfu", "Model FLOPs utilisation (MFU)", units.percent),
)
"""Figures of an epoch, their titles and formats."""


def _plots(runs: Sequence[Run], plots: Sequence[str], otherwise: str) -> str:
    """Plots side by side under the runs' colors."""
    found = "".join(plots)
    if not found:
        return missing(otherwise)
    return (
        f'{legend([run.name for run in runs])}<div class="plots">{found}</div>'
    )


def curves(runs: Sequence[Run]) -> str:
    """The section of losses, metrics and other logs of the epochs."""
    every = dict.fromkeys(
        name for run in runs for record in run.history for name in record
    )
    names = dict.fromkeys(
        name.removeprefix("val_") for name in every if name not in _NO_CURVES
    )
    order = sorted(names, key=lambda n: (n != "loss", n == "learning_rate"))
    plots = []
    for name in order:
        lines = [
            Line(
                run.name + " (validation)" * is_tested,
                color,
                run.values(f"val_{name}" if is_tested else name),
                dashed=is_tested,
            )
            for color, run in enumerate(runs)
            for is_tested in (False, True)
        ]
        title = name.replace("_", " ")
        plots.append(
            plot(
                title[0].upper() + title[1:],
                lines,
                "epoch",
                log=None,
                integers=True,
            )
        )
    return _plots(runs, plots, "No epoch has ended yet.")


def speed(runs: Sequence[Run]) -> str:
    """The section of throughput over the epochs."""
    plots = []
    for name, title, form in _SPEEDS:
        if name.endswith("per_replica") and len({r.replicas for r in runs}) < 2:
            continue
        lines = [
            Line(run.name, color, run.values(name))
            for color, run in enumerate(runs)
        ]
        plots.append(
            plot(title, lines, "epoch", form, from_zero=True, integers=True)
        )
    return _plots(
        runs,
        plots,
        "No epoch has a speed: one whose steps were all traced has none.",
    )


def step_times(runs: Sequence[Run]) -> str:
    """The section of the distribution of step times."""
    lines = []
    for color, run in enumerate(runs):
        found = figures.step_histogram(run)
        total = sum(count for *_, count in found)
        shares = [(low, high, count / total) for low, high, count in found]
        points = [(math.sqrt(low * high), share) for low, high, share in shares]
        lines.append(Line(run.name, color, points, bars=shares))
    drawn = plot(
        "Share of the steps by their time",
        lines,
        "time of a step",
        units.percent,
        units.seconds,
        log_x=True,
        from_zero=True,
    )
    rows = [
        [
            run.name,
            units.seconds(figures.median(run, "step_seconds_median")),
            units.seconds(figures.median(run, "step_seconds_p95")),
            units.plain(figures.median(run, "steps_per_second")),
        ]
        for run in runs
    ]
    head = ["run", "median", "95th percentile", "steps/s"]
    numbers = table(head, rows, "Step times, medians over the epochs")
    hint = "No steps.jsonl: callbacks.RunRecord writes the distribution."
    return f'<div class="beside">{drawn or missing(hint)}{numbers}</div>'
