"""The sections of memory and devices."""

import math
import statistics
from collections.abc import Sequence

from kerasmgpu.report import figures, units
from kerasmgpu.report.html_parts import bar, legend, missing, table
from kerasmgpu.report.run_files import Run
from kerasmgpu.report.svg_plots import Line, plot

_FIGURES = (
    ("utilization", False, "Utilisation of the devices", "%"),
    ("memory_bytes", False, "Memory of the devices", "bytes"),
    ("power_watts", False, "Power of the devices", "W"),
    ("temperature_celsius", False, "Temperature of the devices", "°C"),
    ("sm_clock_mhz", False, "Clock of the devices", "MHz"),
    ("cpu_utilization", True, "Busy CPU cores of a process", "cores"),
    ("memory_bytes", True, "Memory of a process", "bytes"),
)
"""Key of a sample, whether it is of the process, title and unit."""

_IN_TABLE = (
    "utilization",
    "cpu_utilization",
    "power_watts",
    "temperature_celsius",
)
"""Keys of the table of devices."""


def memory(runs: Sequence[Run]) -> str:
    """The section of memory: the variables' bytes, and peaks of devices."""
    parts, rows = [], []
    for run in runs:
        state = run.facts.get("state_bytes", {})
        if state:
            cells = [sum(figures.finite([state.get(n)])) for n in _STATE]
            rows.append([run.name, *map(units.data, [*cells, sum(cells)])])
    if rows:
        head = ["run", *_STATE.values(), "in all"]
        parts.append(table(head, rows, "Variables that a replica holds"))
    bars = ""
    for color, run in enumerate(runs):
        for key, samples in figures.by_device(run).items():
            used, capacity = figures.peak_memory(samples)
            if key[1] != "host" and math.isfinite(used):
                share = used / capacity if capacity else math.nan
                text = f"{units.data(used)} of {units.data(capacity)}"
                pieces = [("used", min(share, 1.0), text)]
                bars += bar(color, _device_name(run, *key), pieces, text)
    if bars:
        parts.append(f'<h3>Peaks</h3><div class="rows">{bars}</div>')
    return "".join(parts) or missing(
        "No file tells: callbacks.RunRecord writes the bytes of variables, "
        "callbacks.DeviceStats the memory that devices use."
    )


_STATE = {
    "weights": "weights",
    "slots": "optimizer",
    "other": "metrics and others",
}
"""Keys of `state_bytes`, and what they are called."""


def devices(runs: Sequence[Run]) -> str:
    """The section of devices: utilisation, memory, power and so on."""
    spans = [
        r.devices[-1]["time"] - r.devices[0]["time"] for r in runs if r.devices
    ]
    if not spans:
        return missing(
            "No devices.jsonl: callbacks.DeviceStats samples the devices."
        )
    time_unit, name_of_it = (
        (60, "minutes") if max(spans) > 180 else (1, "seconds")
    )
    plots = []
    for key, of_process, title, unit in _FIGURES:
        found = [figures.over_time(run, key, of_process) for run in runs]
        factor = 1
        if unit == "bytes":
            largest = max((row[3] for rows in found for row in rows), default=0)
            power, unit = (30, "GiB") if largest >= 2**30 else (20, "MiB")
            factor = 2**power
        lines = [
            Line(
                run.name,
                color,
                [(time / time_unit, mean / factor) for time, mean, *_ in rows],
                [
                    (time / time_unit, low / factor, high / factor)
                    for time, _, low, high in rows
                    if low < high
                ],
            )
            for color, (run, rows) in enumerate(zip(runs, found))
        ]
        plots.append(
            plot(
                title if unit == "%" else f"{title} ({unit})",
                lines,
                f"{name_of_it} since the first sample",
                units.percent if unit == "%" else units.with_unit(unit),
                from_zero=unit != "°C",
            )
        )
    lead = (
        "Lines are means over the devices of a run, areas reach from the least "
        "to the largest of them."
    )
    return (
        f'<p class="lead">{lead}</p>{legend([run.name for run in runs])}'
        f'<div class="plots">{"".join(plots)}</div>{_table(runs)}'
    )


def _table(runs: Sequence[Run]) -> str:
    rows = []
    for run in runs:
        for key, samples in figures.by_device(run).items():
            found = {
                name: figures.finite(one.get(name) for one in samples)
                for name in _IN_TABLE
            }
            mean = {
                name: statistics.fmean(values) if values else math.nan
                for name, values in found.items()
            }
            held_back = [one.get("throttle_reasons") for one in samples]
            share = sum(map(bool, held_back)) / len(samples)
            rows.append(
                [
                    _device_name(run, *key),
                    units.with_unit("cores")(mean["cpu_utilization"])
                    if key[1] == "host"
                    else units.percent(mean["utilization"]),
                    units.data(figures.peak_memory(samples)[0]),
                    units.with_unit("W")(mean["power_watts"]),
                    units.with_unit("°C")(
                        max(found["temperature_celsius"], default=math.nan)
                    ),
                    "–"
                    if held_back == [None] * len(samples)
                    else units.percent(share),
                ]
            )
    head = [
        "device",
        "mean utilisation",
        "peak memory",
        "mean power",
        "highest temperature",
        "time with a reduced clock",
    ]
    return table(head, rows, "Devices over the whole run")


def _device_name(run: Run, worker: int, device: str) -> str:
    of_worker = f"worker {worker} " * (run.facts.get("workers", 1) > 1)
    name = "process" if device == "host" else device
    return f"{run.name}, {of_worker}{name}"
