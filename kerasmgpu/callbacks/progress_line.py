"""The text of `Progress`, and the rate of one replica that it compares with."""

import json
import math
import os
import pathlib
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from kerasmgpu.errors import InputError, checked_number

_FILES = ("throughput.jsonl", "history.jsonl")


def text(
    figures: Mapping[str, float | None],
    num_replicas: int = 1,
    logs: Mapping[str, float] | None = None,
) -> str:
    """Returns figures of an epoch as text; leaves out `None` and NaN.

    Args:
        figures: Mapping with any of `examples_per_second` (of all replicas),
            `efficiency` (share of as many times the rate of one replica),
            `input_wait_share`, `mfu` (0 to 1), `learning_rate`, `memory_bytes`
            (the most that a replica had allocated) and `seconds_left` (until
            the end of the `fit`).
        num_replicas: Integer, replicas of the `fit`.
        logs: Mapping of labels to floats, shown first. Default: none.

    Example:

    >>> text({"examples_per_second": 1234.0, "seconds_left": 75}, 2, {"loss": 0.5})
    'loss 0.5, 1,234 examples/s (617 per replica), 1:15 left'
    """
    known = {
        name: value
        for name, value in figures.items()
        if value is not None and not math.isnan(value)
    }
    parts = [
        f"{label} {short(value, 4)}" for label, value in (logs or {}).items()
    ]
    rate = known.get("examples_per_second")
    details = []
    if rate is not None and num_replicas > 1:
        details.append(f"{short(rate / num_replicas)} per replica")
    if "efficiency" in known:
        details.append(f"{known['efficiency']:.0%} efficient")
    parts.append(
        "no step measured yet"
        if rate is None
        else f"{short(rate)} examples/s"
        + f" ({', '.join(details)})" * bool(details)
    )
    forms: dict[str, Callable[[float], str]] = {
        "input_wait_share": "{:.0%} waiting for input".format,
        "mfu": "{:.1%} MFU".format,
        "learning_rate": "learning rate {:.4g}".format,
        "memory_bytes": lambda size: f"{size / 1e9:.2f} GB per replica",
        "seconds_left": lambda seconds: f"{_duration(seconds)} left",
    }
    parts += [
        form(known[name]) for name, form in forms.items() if name in known
    ]
    return ", ".join(parts).replace("%", " %")


def short(value: float, digits: int = 3) -> str:
    """Formats a number: three digits, a large one without decimals.

    Example:

    >>> short(0.012345), short(12345.6)
    ('0.0123', '12,346')
    """
    is_large = abs(value) >= 10 ** (digits - 1)
    return f"{value:,.0f}" if is_large else f"{value:.{digits}g}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
    )


def rate_of_one_replica(given: float | str | os.PathLike[str]) -> float:
    """Returns examples per second of one replica.

    Args:
        given: Float, the rate. Or string or path-like: the file of a
            `ThroughputLogger`, a recipe's `history.jsonl`, or a folder with
            one of these, of a run on one replica. Of its epochs the median
            counts.

    Raises:
        InputError: If it is neither, or a run on several replicas, or one
            without a measured epoch.
    """
    if not isinstance(given, (str, os.PathLike)):
        return checked_number(given, "one_replica")
    path = pathlib.Path(given)
    if path.is_dir():
        found = [path / name for name in _FILES if (path / name).is_file()]
        if not found:
            raise InputError(
                f"one_replica={path} is a folder without {' or '.join(_FILES)}."
                " Give the folder of a run on one replica, or its file"
            )
        path = found[0]
    rates = []
    for record in _records(path):
        rate = record.get("examples_per_second")
        if not rate:
            continue
        own = record.get("examples_per_second_per_replica")
        replicas = record.get("replicas", round(rate / own) if own else None)
        if replicas != 1:
            raise InputError(
                f"one_replica={path} must be a run on one replica. Received: "
                f"a run on {replicas or 'an unknown number of'} replicas"
            )
        rates.append(rate)
    if not rates:
        raise InputError(
            f"one_replica={path} has no epoch with examples_per_second; train "
            "one replica for two epochs with ThroughputLogger"
        )
    return statistics.median(rates)


def _records(path: pathlib.Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text("utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        if all(isinstance(record, dict) for record in records):
            return records
        problem = "a line is no JSON object"
    except (OSError, ValueError) as error:
        problem = str(error)
    raise InputError(
        f"one_replica={path} can't be read as JSON lines of a run: {problem}"
    )
