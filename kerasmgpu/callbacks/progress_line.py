"""The text of `Progress`, and the rate of one replica that it compares with."""

import json
import math
import os
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

from kerasmgpu.errors import InputError, checked_number

_FILES = ("throughput.jsonl", "history.jsonl")
_PARTS = {
    "input_wait_share": "{:.0%} waiting for input",
    "mfu": "{:.1%} MFU",
    "learning_rate": "learning rate {:.4g}",
    "memory_gigabytes": "{:.2f} GB per replica",
}


def text(figures: Mapping[str, Any], num_replicas: int) -> str:
    """Returns figures as text, separated by commas.

    Args:
        figures: Dictionary of figures as in `ThroughputLogger`, of
            `efficiency`, `mfu`, `learning_rate`, `memory_gigabytes` and
            `seconds_left`. `None` and NaN are left out.
        num_replicas: Integer, replicas of `examples_per_second`.

    Example:

    >>> text({"examples_per_second": 1234.0, "seconds_left": 75}, 2)
    '1,234 examples/s (617 per replica), 1:15 left'
    """
    known = {
        name: value
        for name, value in figures.items()
        if value is not None and not math.isnan(value)
    }
    rate, details = known.get("examples_per_second"), []
    if rate is None:
        parts = ["no step measured yet"]
    else:
        if num_replicas > 1:
            details.append(f"{_short(rate / num_replicas)} per replica")
        if "efficiency" in known:
            details.append(f"{known['efficiency']:.0%} efficient")
        more = f" ({', '.join(details)})" if details else ""
        parts = [f"{_short(rate)} examples/s{more}"]
    parts += [
        form.format(known[name])
        for name, form in _PARTS.items()
        if name in known
    ]
    if "seconds_left" in known:
        parts.append(f"{_duration(known['seconds_left'])} left")
    return ", ".join(parts).replace("%", " %")


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


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
