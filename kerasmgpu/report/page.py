"""The page: its head, and its sections in order."""

import datetime
import math
import pathlib
from collections.abc import Callable, Sequence

from kerasmgpu.errors import listed
from kerasmgpu.hardware import data_sheets
from kerasmgpu.report import figures, sections, units
from kerasmgpu.report.html_parts import (
    Missing,
    chip,
    details,
    escape,
    mark,
    missing,
    table,
)
from kerasmgpu.report.run_files import Run


def render(runs: Sequence[Run], now: datetime.datetime) -> str:
    """Returns the page of some runs as HTML that needs no other file."""
    room = pathlib.Path(__file__).parent
    style = (room / "page.css").read_text("utf-8")
    script = (room / "page.js").read_text("utf-8")
    names = [run.name for run in runs]
    parts: tuple[tuple[str, Callable[[Sequence[Run]], str]], ...] = (
        ("Settings", _settings),
        ("Learning curves", sections.curves),
        ("Speed", sections.speed),
        ("Step times", sections.step_times),
        ("Where the time goes", sections.time),
        ("What replicas send in a step", sections.sent),
        ("Scaling", sections.scaling),
        ("Memory", sections.memory),
        ("Devices", sections.devices),
    )
    made = [
        (title, make.__name__.strip("_"), make(runs)) for title, make in parts
    ]
    shown = [part for part in made if not isinstance(part[2], Missing)]
    links = "".join(
        f'<a href="#{name}">{title}</a>' for title, name, _ in shown
    )
    body = "".join(
        f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2>'
        f"{text}</section>"
        for title, name, text in shown
    )
    title = listed(names, 3)
    models = dict.fromkeys(str(run.facts.get("model", "")) for run in runs)
    models_text = ", ".join(filter(None, models))
    when = now.strftime("%Y-%m-%d %H:%M")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src '
        "'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        'img-src data:">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)} – kerasmgpu report</title>"
        f"<style>{style}</style></head><body>"
        f"<header><p>kerasmgpu report, {when}</p>"
        f"<h1>{escape(models_text or title)}</h1>"
        f'<p class="paths">{escape(_paths(runs))}</p>'
        f"</header><nav aria-label='Sections'>{links}</nav><main>"
        f"{_problems(runs)}{_cards(runs)}{body}{_left_out(made)}</main>"
        f"<script>{script}</script></body></html>\n"
    )


def _paths(runs: Sequence[Run]) -> str:
    return ", ".join(str(run.folder) for run in runs)


def _left_out(made: Sequence[tuple[str, str, str]]) -> str:
    """The sections of which no file tells anything, in one list."""
    lines = "".join(
        f"<li>{escape(title)}: {escape(text.text)}</li>"
        for title, _, text in made
        if isinstance(text, Missing) and text.text
    )
    return details("What is left out", f"<ul>{lines}</ul>") if lines else ""


def _problems(runs: Sequence[Run]) -> str:
    lines = "".join(
        f"<li>{escape(run.folder / problem)}</li>"
        for run in runs
        for problem in run.problems
    )
    return f'<ul class="problems">{lines}</ul>' if lines else ""


# Summary ----------------------------------------------------------------------


def _cards(runs: Sequence[Run]) -> str:
    cards = []
    for color, run in enumerate(runs):
        pairs = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}"
            f"<small>{escape(more)}</small></dd></div>"
            for name, value, more in _summary(run)
        )
        cards.append(
            f'<article class="card {mark(color)}"><h3>{chip(mark(color), run.name)}'
            f"<small>{escape(_state(run))}</small></h3><dl>{pairs}</dl></article>"
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _state(run: Run) -> str:
    done, planned = len(run.history), run.facts.get("epochs")
    of = f"epoch {done}" + (f" of {planned}" if planned else "")
    if "ended" in run.facts or (run.folder / "result.json").is_file():
        return f"finished, {of}"
    return f"not finished: {of}" if "model" in run.facts else of


def _summary(run: Run) -> list[tuple[str, str, str]]:
    """Name, value and a remark of the figures of a card."""
    devices = data_sheets.counted(run.facts.get("devices", ()))
    workers = run.facts.get("workers", 1)
    of_workers = f" on each of {workers} workers" if workers > 1 else ""
    rate = figures.median(run, "examples_per_second")
    per_replica = units.plain(rate / run.replicas)
    losses = run.values("loss")
    final = losses[-1][1] if losses else math.nan
    tested = [pair for pair in run.values("val_loss") if math.isfinite(pair[1])]
    best = min(tested, key=lambda pair: pair[1], default=None)
    parts = figures.time_parts(run)
    total = sum(parts.values())
    slow = max(parts, key=lambda name: parts[name], default=None)
    utilisation = figures.median(run, "mfu")
    rows = [
        ("Replicas", str(run.replicas), devices + of_workers),
        (
            "Examples/s",
            units.plain(rate),
            f"{per_replica} per replica" * (run.replicas > 1),
        ),
        (
            "Step",
            units.seconds(figures.median(run, "step_seconds_median")),
            "95 % within "
            + units.seconds(figures.median(run, "step_seconds_p95")),
        ),
        (
            "Loss",
            units.plain(final),
            f"best validation {units.plain(best[1])}, epoch {best[0]:g}"
            if best
            else "of the last epoch",
        ),
        (
            "Time",
            units.seconds(total) if parts else "–",
            f"{units.percent(parts[slow] / total)} {slow}" if slow else "",
        ),
    ]
    if math.isfinite(utilisation):
        rows.append(("MFU", units.percent(utilisation), "median epoch"))
    if "replicas" not in run.facts:
        rows[0] = ("Replicas", "–", "no run.json")
    return rows


def _settings(runs: Sequence[Run]) -> str:
    by_run = [figures.settings(run) for run in runs]
    names = dict.fromkeys(name for found in by_run for name in found)
    rows = {name: [found.get(name, "–") for found in by_run] for name in names}
    differ = [name for name in rows if len(set(rows[name])) > 1]
    alike = [name for name in rows if name not in differ]
    head = ["setting", *(run.name for run in runs)]
    text = ""
    if differ:
        shown = [[name, *rows[name]] for name in differ]
        text = table(head, shown, "Settings that differ", "settings marked")
    elif len(runs) > 1:
        text = missing("All settings are the same.")
    if alike:
        shown = [[name, rows[name][0]] for name in alike]
        label = "The same in all runs" if len(runs) > 1 else "All settings"
        body = table(["setting", "value"], shown, label, "settings")
        text += details(f"{label} ({len(alike)})", body)
    return text or missing("No run.json or flags.txt says how it was run.")
