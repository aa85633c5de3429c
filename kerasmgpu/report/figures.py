"""What a report shows of runs, computed from their files."""

import collections
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from kerasmgpu import replica_arithmetic
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

TIMES = {
    "computation": "computation",
    "input": "waiting for input",
    "workers": "communication, waiting for other workers",
    "validation": "validation",
    "other": "other: tracing, callbacks, checkpoints",
}
"""Classes of the parts of a run's time, and what they are called."""


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
        found["rows per replica and step"] = rows / run.replicas
    for name in _PLAIN_FACTS:
        found[name.replace("_", " ")] = facts.get(name)
    found["devices"] = device_names(facts.get("devices", ())) or None
    for name, value in facts.get("strategy", {}).items():
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
    """Seconds of a run by the keys of `TIMES`, as far as its files tell.

    An epoch's steps are computation but for the first worker's wait for input
    and, in a job, the time in which a worker of average speed does neither. The
    rest of the epoch is validation and other work.
    """
    parts: dict[str, float] = {}

    def add(name: str, value: float) -> None:
        if math.isfinite(value):
            parts[name] = parts.get(name, 0.0) + max(0.0, value)

    for record in run.history:
        seconds = number(record.get("seconds"))
        if not math.isfinite(seconds):
            continue
        waited = seconds * number(record.get("input_wait_share"))
        rate = number(record.get("steps_per_second"))
        own = [
            number(record.get(f"{which}_worker_step_seconds"))
            for which in ("slowest", "fastest")
        ]
        together = seconds * (1 - rate * sum(own) / 2)
        add("input", waited)
        add("workers", together)
        spent = sum(max(0.0, v) for v in finite([waited, together]))
        add("computation", seconds - spent)
        tested = number(record.get("validation_seconds"))
        add("validation", tested)
        wall = number(record.get("wall_seconds"))
        add("other", wall - seconds - sum(finite([tested])))
    return {name: parts[name] for name in TIMES if parts.get(name)}


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


def sent(run: Run) -> dict[tuple[str, str], tuple[float, int]]:
    """What replicas send in a step.

    Returns:
        Dictionary from purpose and kind to bytes and number of collectives.
    """
    if run.replicas == 1:
        return {}
    return {
        (str(one.get("purpose")), str(one.get("kind")).replace("_", "-")): (
            sum(finite([one.get("bytes")])),
            int(sum(finite([one.get("collectives")]))),
        )
        for one in run.facts["sent_per_step"]
    }


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
        if "replicas" not in run.facts or not examples_per_second(run) > 0:
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


def examples_per_second(run: Run) -> float:
    """Examples per second of the median epoch, or NaN."""
    return median(run, "examples_per_second")


def efficiency(run: Run, first: Run) -> tuple[float, float]:
    """Speed-up and efficiency of a run against one on fewer replicas."""
    ratio = replica_arithmetic.speed_up(
        examples_per_second(run), examples_per_second(first)
    )
    return ratio, replica_arithmetic.efficiency(
        ratio, run.replicas, reference_replicas=first.replicas
    )


Device = tuple[int, str]
"""Index of a worker, and the name of its device."""


def by_device(run: Run) -> dict[Device, list[Record]]:
    """The samples of each device, by time; those of processes last."""
    found: dict[Device, list[Record]] = {}
    for sample in run.devices:
        worker = sum(finite([sample.get("worker", 0)]))
        key = int(worker), str(sample.get("device"))
        found.setdefault(key, []).append(sample)
    order = sorted(found, key=lambda key: (key[1] == "host", key[0], key[1]))
    return {key: found[key] for key in order}


def over_time(
    run: Run, name: str, host: bool
) -> list[tuple[float, float, float, float]]:
    """A figure of the devices, or of the processes, over time.

    Returns:
        List of `(seconds, mean, least, largest)` over the devices, by time
        since the first sample.
    """
    series = {
        key: [(one["time"], number(one[name])) for one in found if name in one]
        for key, found in by_device(run).items()
        if (key[1] == "host") == host
    }
    most = max(map(len, series.values()), default=0)
    if not most:
        return []
    first, last = run.devices[0]["time"], run.devices[-1]["time"]
    width = (last - first) / min(_MOST_TIMES, most) or 1.0
    buckets: dict[int, dict[Device, list[float]]] = {}
    for key, points in series.items():
        for time, value in points:
            if math.isfinite(value):
                bucket = buckets.setdefault(int((time - first) / width), {})
                bucket.setdefault(key, []).append(value)
    rows = []
    for number_of_bucket, bucket in sorted(buckets.items()):
        means = [statistics.fmean(values) for values in bucket.values()]
        mean = statistics.fmean(means)
        rows.append((number_of_bucket * width, mean, min(means), max(means)))
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
