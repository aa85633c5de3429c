"""The page's sections of curves, speed, time, communication and devices."""

import math
from collections.abc import Collection, Mapping, Sequence

from kerasmgpu.report import figures, units
from kerasmgpu.report.html_parts import (
    COLORS_OF_PARTS,
    bar,
    chip,
    details,
    legend,
    missing,
    table,
)
from kerasmgpu.report.run_files import Run
from kerasmgpu.report.svg_plots import Line, plot

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

_NO_CURVES = {
    *(name for name, *_ in _SPEEDS),
    *("epoch", "time", "seconds", "wall_seconds", "validation_seconds"),
    *("steps_per_second", "step_seconds_median", "step_seconds_p95"),
    *("slowest_worker", "slowest_worker_step_seconds"),
    *("fastest_worker_step_seconds", "flops_per_second"),
}
"""Figures of an epoch that are no learning curves."""

_OF_DEVICES = (
    ("utilization", False, "Utilisation of the devices", "%"),
    ("memory_bytes", False, "Memory of the devices", "bytes"),
    ("power_watts", False, "Power of the devices", "W"),
    ("temperature_celsius", False, "Temperature of the devices", "°C"),
    ("sm_clock_mhz", False, "Clock of the devices", "MHz"),
    ("cpu_utilization", True, "Busy CPU cores of a process", "cores"),
    ("memory_bytes", True, "Memory of a process", "bytes"),
)
"""Key of a sample, whether it is of the process, title and unit."""

_THE_REST = "the rest"
_PEAK = "part-11"  # The color that no part of the variables has.

_STATE = {"weights": "weights", "slots": "optimizer", "other": "others"}
"""Keys of `state_bytes`, and what they are called."""


def _plots(runs: Sequence[Run], plots: Sequence[str], otherwise: str) -> str:
    """Plots side by side under the runs' colors."""
    if not any(plots):
        return missing(otherwise)
    names = legend([run.name for run in runs])
    return f'{names}<div class="plots">{"".join(plots)}</div>'


def _breakdown(
    runs: Sequence[Run],
    parts: Sequence[Mapping[str, float]],
    order: Sequence[str],
    form: units.Format,
    caption: str,
) -> str:
    """A bar for each run, and their table.

    `parts` maps names to sizes, for each run; `order` has all names, by which
    parts get their colors. No two parts have one: the smallest are put
    together if there are more parts than colors.
    """
    shown = [name for name in order if any(name in one for one in parts)]
    if len(shown) > COLORS_OF_PARTS:
        by_size = sorted(
            shown, key=lambda name: -sum(one.get(name, 0.0) for one in parts)
        )
        kept = {*by_size[: COLORS_OF_PARTS - 1]}
        parts = [_put_together(one, kept) for one in parts]
        shown = [*(name for name in shown if name in kept), _THE_REST]
    kinds = {name: f"part-{number}" for number, name in enumerate(shown)}
    if len(order) <= COLORS_OF_PARTS:
        # The same in all reports.
        kinds = {name: f"part-{number}" for number, name in enumerate(order)}
    longest = max((sum(one.values()) for one in parts), default=0.0) or 1.0
    bars, rows = "", []
    for color, (run, one) in enumerate(zip(runs, parts)):
        total = sum(one.values())
        texts = {
            name: f"{form(size)} ({units.percent(size / (total or 1.0))})"
            for name, size in one.items()
        }
        pieces = [
            (kinds[name], one[name] / longest, texts[name], name)
            for name in shown
            if name in one
        ]
        bars += bar(color, run.name, pieces, form(total))
        rows.append(
            [run.name, form(total), *(texts.get(n, "–") for n in shown)]
        )
    keys = "".join(chip(kinds[name], name) for name in shown)
    return (
        f'<p class="legend">{keys}</p><div class="rows">{bars}</div>'
        f"{table(['run', 'in all', *shown], rows, caption)}"
    )


def _put_together(
    parts: Mapping[str, float], kept: Collection[str]
) -> dict[str, float]:
    found = {name: size for name, size in parts.items() if name in kept}
    rest = sum(size for name, size in parts.items() if name not in kept)
    return {**found, _THE_REST: rest} if rest else found


def curves(runs: Sequence[Run]) -> str:
    """Losses, metrics and other logs of the epochs."""
    every = dict.fromkeys(
        name.removeprefix("val_")
        for run in runs
        for record in run.history
        for name in record
        if name not in _NO_CURVES and not name.startswith(("gpu_", "host_"))
    )
    plots = []
    for name in sorted(
        every, key=lambda n: (n != "loss", n == "learning_rate")
    ):
        lines = [
            Line(
                run.name + " (validation)" * bool(prefix),
                color,
                run.values(prefix + name),
                dashed=bool(prefix),
            )
            for color, run in enumerate(runs)
            for prefix in ("", "val_")
        ]
        title = name[0].upper() + name[1:].replace("_", " ")
        plots.append(plot(title, lines, "epoch", log=None, integers=True))
    return _plots(runs, plots, "No epoch has ended yet.")


def speed(runs: Sequence[Run]) -> str:
    """Throughput over the epochs."""
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
    hint = "No epoch has a speed: one whose steps were all traced has none."
    return _plots(runs, plots, hint)


def step_times(runs: Sequence[Run]) -> str:
    """The distribution of step times."""
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
    hint = "No steps.jsonl: callbacks.RunRecord writes the distribution."
    return _plots(runs, [drawn], hint)


def time(runs: Sequence[Run]) -> str:
    """Where the time goes."""
    found = [figures.time_parts(run) for run in runs]
    if not any(found):
        return missing("No times.jsonl: callbacks.RunRecord writes it.")
    others = dict.fromkeys(
        name for one in found for name in one if name not in figures.TIMES
    )
    order = [*figures.TIMES, *others]
    return _breakdown(runs, found, order, units.seconds, "Times")


def sent(runs: Sequence[Run]) -> str:
    """What replicas send in a step."""
    found = [figures.sent(run) for run in runs]
    order = list(dict.fromkeys(name for one in found for name in one))
    if not order:
        if all(run.replicas == 1 for run in runs):
            return missing("")  # One replica sends nothing.
        return missing(
            "callbacks.RunRecord writes into run.json what replicas send, once "
            "the first epoch has ended."
        )
    caption = "What replicas send in a step"
    text = _breakdown(runs, found, order, units.data, caption)
    for run in runs:
        rows = [
            (name, units.data(held), units.data(passed), by or "–")
            for name, (held, passed, by) in figures.layers(run).items()
        ]
        if rows:
            title = f"Layers of {run.name}"
            head = "layer", "a replica holds", "and sends in a step", "by"
            text += details(title, table(head, rows, title))
    return text


def scaling(runs: Sequence[Run]) -> str:
    """Speed-up and efficiency of runs that differ in their replicas only."""
    parts = []
    for batch, alike in figures.scaling(runs):
        first, best, rows = figures.fastest_of_fewest(alike), {}, []
        rate = figures.median(first, "examples_per_second") / first.replicas
        for run in alike:
            count = run.replicas
            speed = figures.median(run, "examples_per_second")
            best[count] = max(speed, best.get(count, 0.0))
            speed_up, efficiency = figures.efficiency(run, first)
            rows.append(
                [
                    *(run.name, count, units.plain(speed)),
                    *(f"{speed_up:.2f}", units.percent(efficiency)),
                ]
            )
        ideal = [(count, rate * count) for count in best]
        drawn = plot(
            "Examples per second",
            [
                Line("ideal", -1, ideal, dashed=True),
                Line("measured", 0, list(best.items())),
            ],
            "replicas",
            from_zero=True,
            x_ticks=list(best),
            note=f"{batch} is the same",
            dashes=("measured", "ideal"),
        )
        head = ["run", "replicas", "examples/s", "speed-up", "efficiency"]
        numbers = table(head, rows, f"Scaling: {batch}")
        parts.append(f'<div class="beside">{drawn}{numbers}</div>')
    hint = (
        "Give several runs that differ in their number of replicas only: with "
        "the same batch of a step, or of a replica, and as many examples."
    )
    return "".join(parts) or missing(hint if len(runs) > 1 else "")


def memory(runs: Sequence[Run]) -> str:
    """Bytes of variables, and peaks of devices."""
    held = [
        {
            _STATE[name]: sum(figures.finite([size]))
            for name, size in run.facts.get("state_bytes", {}).items()
            if name in _STATE
        }
        for run in runs
    ]
    text, bars = "", ""
    if any(held):
        order = list(_STATE.values())
        caption = "Variables that a replica holds"
        text = f"<h3>{caption}</h3>"
        text += _breakdown(runs, held, order, units.data, caption)
    for color, run in enumerate(runs):
        for name, samples in figures.by_device(run).items():
            used, capacity = figures.peak_memory(samples)
            if math.isfinite(used) and "process" not in name:
                told = f"{units.data(used)} of {units.data(capacity)}"
                share = min(used / capacity, 1.0) if capacity else math.nan
                pieces = [(_PEAK, share, told, "peak")]
                bars += bar(color, f"{run.name}, {name}", pieces, told)
    if bars:
        key = f'<p class="legend">{chip(_PEAK, "peak, of the capacity")}</p>'
        text += f"<h3>Peaks of the devices</h3>{key}"
        text += f'<div class="rows">{bars}</div>'
    return text or missing(
        "No file tells: callbacks.RunRecord writes the bytes of variables, "
        "callbacks.DeviceStats the memory that devices use."
    )


def devices(runs: Sequence[Run]) -> str:
    """Utilisation, memory, power and so on of the devices, over time."""
    if not any(run.devices for run in runs):
        return missing(
            "No devices.jsonl: callbacks.DeviceStats samples the devices."
        )
    plots = []
    for key, of_process, title, unit in _OF_DEVICES:
        found = [figures.over_time(run, key, of_process) for run in runs]
        size = 1
        if unit == "bytes":
            size, unit = 2**20, "MiB"
            largest = figures.finite(row[3] for rows in found for row in rows)
            if max(largest, default=0) > 2**30:
                size, unit = 2**30, "GiB"
        lines = [
            Line(
                run.name,
                color,
                [(at, mean / size) for at, mean, *_ in rows],
                [
                    (at, low / size, high / size)
                    for at, _, low, high in rows
                    if not low == high
                ],
            )
            for color, (run, rows) in enumerate(zip(runs, found))
        ]
        form = units.percent if unit == "%" else units.with_unit(unit)
        title += f" ({unit})" * (unit != "%")
        label = "minutes since the first sample"
        plots.append(plot(title, lines, label, form, from_zero=unit != "°C"))
    drawn = _plots(runs, plots, "") if any(plots) else ""
    rows = [
        [f"{run.name}, {name}", *figures.device_row(samples)]
        for run in runs
        for name, samples in figures.by_device(run).items()
    ]
    lead = (
        "Lines are means over the devices of a run, areas reach from the least "
        "to the largest of them."
    )
    return (
        f'<p class="lead">{lead}</p>{drawn}'
        f"{table(figures.DEVICE_HEAD, rows, 'Devices over the whole run')}"
    )
