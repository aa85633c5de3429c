"""What a report shows of runs, computed from their files."""

import collections
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from kerasmgpu import replica_arithmetic
from kerasmgpu.commands import reports
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
)
"""Settings that say how many replicas there are, or follow from it."""

TIMES = (
    "computation",
    "waiting for input",
    "communication, waiting for other workers",
    "validation",
    "other: tracing, callbacks, checkpoints",
)
"""The parts of a run's time."""

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


def finite(values: Iterable[Any]) -> list[float]:
    """The finite ones of some values."""
    return [v for v in map(number, values) if math.isfinite(v)]


def median(run: Run, name: str) -> float:
    """Median of a figure over the epochs, NaN without one."""
    values = finite(value for _, value in run.values(name))
    return statistics.median(values) if values else math.nan


def device_names(devices: Sequence[Any]) -> str:
    """Names of devices without their numbers: `4 × GPU (NVIDIA H100)`."""
    kinds = collections.Counter(re.sub(r":\d+", "", str(d)) for d in devices)
    return ", ".join(f"{count} × {kind}" for kind, count in kinds.items())


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
    found["devices"] = device_names(facts.get("devices", ())) or None
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
    """Seconds of a run by `TIMES`, as far as its files tell.

    An epoch's steps are computation but for the first worker's wait for input
    and, in a job, the time in which a worker of average speed does neither. The
    rest of the epoch is validation and other work.
    """
    sums = dict.fromkeys(TIMES, 0.0)
    for record in run.history:
        known = {name: number(value) for name, value in record.items()}
        seconds = known.get("seconds", math.nan)
        if not math.isfinite(seconds):
            continue

        def positive(value: float) -> float:
            return value if value > 0 else 0.0  # NaN is not.

        waited = positive(seconds * known.get("input_wait_share", 0.0))
        busy = [
            known.get(f"{which}_worker_step_seconds", math.nan)
            for which in ("slowest", "fastest")
        ]
        rate = known.get("steps_per_second", math.nan)
        together = positive(seconds * (1 - rate * sum(busy) / 2))
        tested = positive(known.get("validation_seconds", 0.0))
        wall = known.get("wall_seconds", 0.0)
        parts = (
            *(positive(seconds - waited - together), waited, together, tested),
            positive(wall - seconds - tested),
        )
        for name, part in zip(TIMES, parts):
            sums[name] += part
    return {name: value for name, value in sums.items() if value}


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
    """Groups of runs that differ in their number of replicas only.

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
        kind = re.sub(r"\d+ × ", "", found.get("devices", ""))
        same = tuple(i for i in found.items() if i[0] not in _OF_SCALING)
        for batch, size in (
            ("the batch of a step", rows),
            ("the batch of a replica", rows / run.replicas),
        ):
            groups[batch, size, kind, same].append(run)
    return [
        (batch, alike)
        for (batch, *_), alike in groups.items()
        if alike[0].replicas < alike[-1].replicas
    ]


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
        since the first sample.
    """
    series = [
        [(one["time"], number(one[name])) for one in samples if name in one]
        for device, samples in by_device(run).items()
        if device.endswith("process") == of_process
    ]
    most = max(map(len, series), default=0)
    if not most:
        return []
    first, last = run.devices[0]["time"], run.devices[-1]["time"]
    width = (last - first) / min(_MOST_TIMES, most) or 1.0
    buckets: dict[int, dict[int, list[float]]] = {}
    for device, points in enumerate(series):
        for time, value in points:
            if math.isfinite(value):
                bucket = buckets.setdefault(int((time - first) / width), {})
                bucket.setdefault(device, []).append(value)
    rows = []
    for at, bucket in sorted(buckets.items()):
        means = [statistics.fmean(values) for values in bucket.values()]
        mean = statistics.fmean(means)
        rows.append((at * width / 60, mean, min(means), max(means)))
    return rows


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
