"""The sections of where time goes, what is sent, and scaling."""

from collections.abc import Sequence

from kerasmgpu.report import figures, units
from kerasmgpu.report.html_parts import bar, escape, missing, table
from kerasmgpu.report.run_files import Run
from kerasmgpu.report.svg_plots import Line, plot


def time(runs: Sequence[Run]) -> str:
    """The section of where the time goes."""
    found = [figures.time_parts(run) for run in runs]
    shown = [name for name in figures.TIMES if any(name in f for f in found)]
    if not shown:
        return missing("No epoch tells how long its steps took.")
    longest = max(sum(parts.values()) for parts in found)
    bars, rows = "", []
    for color, (run, parts) in enumerate(zip(runs, found)):
        total = sum(parts.values()) or 1.0
        texts = {
            name: f"{units.seconds(value)} ({units.percent(value / total)})"
            for name, value in parts.items()
        }
        pieces = [
            (f"time-{n}", parts[n] / total, f"{figures.TIMES[n]}: {text}")
            for n, text in texts.items()
        ]
        whole = units.seconds(sum(parts.values()))
        bars += bar(color, run.name, pieces, whole, total / longest)
        rows.append([run.name, whole, *(texts.get(n, "–") for n in shown)])
    keys = "".join(
        f'<span class="chip time-{n}">{escape(figures.TIMES[n])}</span>'
        for n in shown
    )
    head = ["run", "in all", *(figures.TIMES[name] for name in shown)]
    return (
        f'<p class="legend">{keys}</p><div class="rows">{bars}</div>'
        f"{table(head, rows, 'Times')}"
    )


def sent(runs: Sequence[Run]) -> str:
    """The section of what replicas send in a step."""
    found = [figures.sent(run) for run in runs]
    kinds = list(dict.fromkeys(kind for one in found for kind in one))
    if not kinds:
        return missing(
            "One replica sends nothing. Of several, callbacks.RunRecord writes "
            "into run.json what they send, once the first epoch has ended."
        )
    sums = [sum(size for size, _ in one.values()) for one in found]
    bars = ""
    for color, (run, one, total) in enumerate(zip(runs, found, sums)):
        pieces = [
            (
                f"sent-{kinds.index(kind) % 5}",
                size / (total or 1.0),
                f"{kind[0]}, {kind[1]}: {units.data(size)}",
            )
            for kind, (size, _) in one.items()
        ]
        scale = total / (max(sums) or 1.0)
        bars += bar(color, run.name, pieces, units.data(total), scale)
    rows = [
        [
            *kind,
            *(
                f"{units.data(one[kind][0])} in {one[kind][1]} calls"
                if kind in one
                else "–"
                for one in found
            ),
        ]
        for kind in kinds
    ]
    head = [
        "for",
        "collective",
        *(run.name for run in runs),
    ]
    keys = "".join(
        f'<span class="chip sent-{number % 5}">{escape(", ".join(kind))}</span>'
        for number, kind in enumerate(kinds)
    )
    return (
        f'<p class="legend">{keys}</p><div class="rows">{bars}</div>'
        f"{table(head, rows, 'What replicas send in a step')}"
    )


def scaling(runs: Sequence[Run]) -> str:
    """The section of speed-up and efficiency."""
    parts = []
    for batch, alike in figures.scaling(runs):
        first = alike[0]
        rate = figures.examples_per_second(first) / first.replicas
        best: dict[int, float] = {}
        rows = []
        for run in alike:
            speed, count = figures.examples_per_second(run), run.replicas
            best[count] = max(speed, best.get(count, 0.0))
            speed_up, efficiency = figures.efficiency(run, first)
            rows.append(
                [
                    run.name,
                    count,
                    units.plain(speed),
                    units.plain(speed / count),
                    f"{speed_up:.2f}",
                    units.percent(efficiency),
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
        head = ["run", "replicas", "examples/s", "per replica", "speed-up"]
        numbers = table([*head, "efficiency"], rows, f"Scaling: {batch}")
        parts.append(f'<div class="beside">{drawn}{numbers}</div>')
    return "".join(parts) or missing(
        "Give several runs that differ in their number of replicas only: with "
        "the same batch of a step, or of a replica."
    )
