"""What a report shows of runs, computed from their files."""

import bisect
import collections
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from kerasmgpu import replica_arithmetic
from kerasmgpu.commands import reports
from kerasmgpu.hardware import data_sheets
from kerasmgpu.hardware.gpu import NOT_SLOWED
from kerasmgpu.report import units
from kerasmgpu.report.run_files import Record, Run, number

_OF_SCALING = (
    "--num_replicas",
    "--virtual_devices",
    "replicas",
    "workers",
    "devices",
    "rows per step",
    "rows per replica and step",
    "learning rate",
    "steps per epoch",
    "epochs",
    "strategy",
    "xla cache",
)
"""Settings that say how many replicas there are, or follow from it, or where
files are kept."""

TIMES = (
    "computation",
    "waiting for input",
    "communication, waiting for other workers",
    "tracing and compilation",
    "validation",
    "checkpoints",
    "other",
)
"""The parts of a run's time, besides those of its callbacks."""

OTHER_CALLBACKS = "other callbacks"
_MOST_CALLBACKS = 3  # Of which each has a part of its own.

DEVICE_HEAD = (
    "device",
    "mean utilisation",
    "peak memory",
    "mean power",
    "highest temperature",
    "time with a reduced clock",
)
"""Columns of the table of devices."""

_PLAIN_FACTS = (
    "precision",
    "xla",
    "steps_per_execution",
    "steps_per_epoch",
    "epochs",
    "replicas",
    "workers",
)
"""Keys of `run.json` that are settings under the same name."""

_MOST_TIMES = 400
"""Points of a line over time."""

_PAUSE = 10
_SHORTEST_PAUSE = 5.0
"""How many times longer than samples are apart a pause is, and its seconds."""


def finite(values: Iterable[Any]) -> list[float]:
    """The finite ones of some values."""
    return [v for v in map(number, values) if math.isfinite(v)]


def median(run: Run, name: str) -> float:
    """Median of a figure over the epochs, NaN without one."""
    values = finite(value for _, value in run.values(name))
    return statistics.median(values) if values else math.nan


def settings(run: Run) -> dict[str, str]:
    """The settings of a run as names and texts."""
    facts = run.facts
    found: dict[str, Any] = {"model": facts.get("model")}
    for name, count in facts.get("parameters", {}).items():
        found[f"{name} parameters"] = count
    optimizer = facts.get("optimizer", {})
    found["optimizer"] = optimizer.get("name")
    found["learning rate"] = optimizer.get(
        "learning_rate", facts.get("learning_rate")
    )
    rows = facts.get("global_batch_size")
    found["rows per step"] = rows
    if rows:
        shares = facts.get("strategy", {}).get("row_shares", run.replicas)
        found["rows per replica and step"] = rows / shares
    for name in _PLAIN_FACTS:
        found[name.replace("_", " ")] = facts.get(name)
    found["devices"] = data_sheets.counted(facts.get("devices", ())) or None
    strategy = dict(facts.get("strategy", {}))
    strategy.pop("row_shares", None)
    if isinstance(strategy.get("mesh"), dict):
        strategy["mesh"] = reports.mesh_text(strategy["mesh"])
    for name, value in strategy.items():
        found["strategy" if name == "name" else name.replace("_", " ")] = value
    found |= facts.get("versions", {})
    found |= {f"--{name}": value for name, value in run.flags.items()}
    return {
        name: _text(value) for name, value in found.items() if value is not None
    }


def _text(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,.0f}" if value == value // 1 else f"{value:.6g}"
    return str(value)


def time_parts(run: Run) -> dict[str, float]:
    """Seconds of a run by what they went to, as `times.jsonl` tells.

    Callbacks that took more than a hundredth of the time have a part of their
    own; the others are one.
    """
    sums: dict[str, float] = dict.fromkeys(TIMES, 0.0)
    for record in run.times:
        for name, value in record.items():
            seconds = number(value)
            if name != "epoch" and seconds > 0:
                sums[name] = sums.get(name, 0.0) + seconds
    least = sum(sums.values()) / 100
    by_size = sorted(sums, key=lambda name: -sums[name])
    long = [name for name in by_size if sums[name] > least]
    named = [n for n in long if n.startswith("callback ")][:_MOST_CALLBACKS]
    rest = sum(
        sums.pop(name)
        for name in by_size
        if name not in TIMES and name not in named
    )
    parts = {name: sums[name] for name in (*TIMES, *named)}
    parts = {**parts, OTHER_CALLBACKS: rest}
    return {name: value for name, value in parts.items() if value}


def step_histogram(run: Run) -> list[tuple[float, float, int]]:
    """`(from, to, steps)` of all epochs' step times, by seconds."""
    counts: collections.Counter[tuple[float, float]] = collections.Counter()
    for record in run.steps:
        edges, steps = record.get("edges"), record.get("counts")
        if not isinstance(edges, list) or not isinstance(steps, list):
            continue
        for low, high, count in zip(edges, edges[1:], steps):
            if 0 < number(low) < number(high) and number(count) > 0:
                counts[low, high] += count
    return [(*edges, count) for edges, count in sorted(counts.items())]


def sent(run: Run) -> dict[str, float]:
    """Bytes that replicas send in a step, by purpose and collective."""
    sums: dict[str, float] = {}
    for one in run.facts["sent_per_step"] if run.replicas > 1 else ():
        kind = str(one.get("kind")).replace("_", "-")
        along = f" along {one['axis']}" if "axis" in one else ""
        name = f"{one.get('purpose')}, {kind}{along}"
        sums[name] = sums.get(name, 0.0) + sum(finite([one.get("bytes")]))
    return sums


def layers(run: Run) -> dict[str, tuple[float, float, str]]:
    """Bytes that each layer makes a replica hold and send, and by what."""
    found = {}
    for one in run.facts["layers"] if run.replicas > 1 else ():
        kinds = one.get("by") if isinstance(one.get("by"), list) else ()
        found[str(one.get("layer"))] = (
            sum(finite([one.get("held")])),
            sum(finite([one.get("sent")])),
            ", ".join(str(kind).replace("_", "-") for kind in kinds),
        )
    return found


def scaling(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Groups of runs of one size that differ in their number of replicas only.

    Epochs of one size have as many examples, or with the batch of a replica as
    many steps.

    Returns:
        List of `(batch, runs)`: which batch is the same, and the runs by
        replicas.
    """
    groups: dict[Any, list[Run]] = collections.defaultdict(list)
    for run in sorted(runs, key=lambda run: run.replicas):
        found = settings(run)
        rows = run.facts.get("global_batch_size", 0)
        if not median(run, "examples_per_second") > 0:
            continue
        steps = run.facts.get("steps_per_epoch")
        data = run.facts.get("examples_per_epoch")
        kind = re.sub(r"\d+ × ", "", found.get("devices", ""))
        same = tuple(i for i in found.items() if i[0] not in _OF_SCALING)
        of_replica = rows / run.replicas
        for batch, *size in (
            ("the batch of a step", rows, data),
            ("the batch of a replica", of_replica, "examples", data),
            # Of data that grow with the replicas.
            ("the batch of a replica", of_replica, "steps", steps),
        ):
            key = (batch, *size, kind, same)
            groups[key].append(run)
    distinct: dict[Any, tuple[str, list[Run]]] = {}
    for (batch, *_), alike in groups.items():
        if alike[0].replicas < alike[-1].replicas:
            distinct.setdefault((batch, *map(id, alike)), (batch, alike))
    return [*distinct.values()]


def fastest_of_fewest(alike: Sequence[Run]) -> Run:
    """The run that the others of a group are compared with."""
    fewest = [run for run in alike if run.replicas == alike[0].replicas]
    return max(fewest, key=lambda run: median(run, "examples_per_second"))


def efficiency(run: Run, first: Run) -> tuple[float, float]:
    """Speed-up and efficiency of a run against one on fewer replicas."""
    ratio = replica_arithmetic.speed_up(
        median(run, "examples_per_second"), median(first, "examples_per_second")
    )
    return ratio, replica_arithmetic.efficiency(
        ratio, run.replicas, reference_replicas=first.replicas
    )


def by_device(run: Run) -> dict[str, list[Record]]:
    """The samples of each device, by its name; those of processes last."""
    found: dict[tuple[bool, int, str], list[Record]] = {}
    for sample in run.devices:
        worker = sum(finite([sample.get("worker")]))
        device = str(sample.get("device"))
        key = device == "host", int(worker), device
        found.setdefault(key, []).append(sample)
    several = len({worker for _, worker, _ in found}) > 1
    return {
        f"worker {worker} " * several + ("process" if host else device): found[
            host, worker, device
        ]
        for host, worker, device in sorted(found)
    }


def over_time(
    run: Run, name: str, of_process: bool
) -> list[tuple[float, float, float, float]]:
    """A figure of the devices, or of the processes, over time.

    Returns:
        List of `(minutes, mean, least, largest)` over the devices, by time
        since the first sample; NaN where the run paused.
    """
    series = [
        [(one["time"], number(one[name])) for one in samples if name in one]
        for device, samples in by_device(run).items()
        if device.endswith("process") == of_process
    ]
    most = max(map(len, series), default=0)
    if not most:
        return []
    first = run.devices[0]["time"]
    starts = _starts([time for points in series for time, _ in points])
    last = [
        max(t for p in series for t, _ in p if t < end) for end in starts[1:]
    ]
    sampled = sum(end - start for start, end in zip(starts, last))
    width = sampled / min(_MOST_TIMES, most) or 1.0
    buckets: dict[tuple[int, int], dict[int, list[float]]] = {}
    for device, points in enumerate(series):
        for time, value in points:
            if math.isfinite(value):
                period = bisect.bisect_right(starts, time) - 1
                place = period, int((time - starts[period]) / width)
                bucket = buckets.setdefault(place, {})
                bucket.setdefault(device, []).append(value)
    rows: list[tuple[float, float, float, float]] = []
    before = 0
    for (period, at), bucket in sorted(buckets.items()):
        means = [statistics.fmean(values) for values in bucket.values()]
        mean = statistics.fmean(means)
        minutes = (starts[period] - first + at * width) / 60
        if period != before:
            rows.append((minutes, math.nan, math.nan, math.nan))
        before = period
        rows.append((minutes, mean, min(means), max(means)))
    return rows


def _starts(times: Sequence[float]) -> list[float]:
    """Begins of the periods without a pause, and infinity.

    A pause is that between two programs: it is far longer than samples are
    apart.
    """
    times = sorted(set(times))
    apart = [after - before for before, after in zip(times, times[1:])]
    usual = statistics.median(apart) if apart else 0.0
    limit = max(_PAUSE * usual, _SHORTEST_PAUSE)
    starts = [t for t, gap in zip(times[1:], apart) if gap > limit]
    return [times[0], *starts, math.inf]


def peak_memory(samples: Sequence[Record]) -> tuple[float, float]:
    """Most bytes of a device that samples show, and its capacity; or NaN."""
    used = finite(
        one.get(name)
        for one in samples
        for name in ("memory_bytes", "memory_peak_bytes")
    )
    capacity = finite(one.get("memory_total_bytes") for one in samples)
    return max(used, default=math.nan), max(capacity, default=math.nan)


def device_row(samples: Sequence[Record]) -> list[str]:
    """What `DEVICE_HEAD` says of a device, without its name."""

    def values(name: str) -> list[float]:
        return finite(one.get(name) for one in samples) or [math.nan]

    cores = units.with_unit("cores")(
        statistics.fmean(values("cpu_utilization"))
    )
    share = units.percent(statistics.fmean(values("utilization")))
    reduced = [
        not NOT_SLOWED.issuperset(one["throttle_reasons"])
        for one in samples
        if isinstance(one.get("throttle_reasons"), list)
    ]
    return [
        cores if "cpu_utilization" in samples[0] else share,
        units.data(peak_memory(samples)[0]),
        units.with_unit("W")(statistics.fmean(values("power_watts"))),
        units.with_unit("°C")(max(values("temperature_celsius"))),
        units.percent(statistics.fmean(reduced)) if reduced else "–",
    ]
