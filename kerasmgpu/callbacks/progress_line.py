"""The text of `Progress`, and the rate of one replica that it compares with."""

import dataclasses
import json
import os
import pathlib
import statistics
from typing import Any

from kerasmgpu.errors import InputError, checked_number

_FILES = ("throughput.jsonl", "history.jsonl")


@dataclasses.dataclass(frozen=True)
class Line:
    """Figures of an epoch, as `Progress` shows them; `None` is left out.

    Attributes:
        epoch: Integer, from 1.
        epochs: Integer, epochs of the `fit`.
        examples_per_second: Float, of all replicas.
        num_replicas: Integer.
        efficiency: Float, share of as many times the rate of one replica.
        input_wait_share: Float, 0 to 1.
        mfu: Float, 0 to 1.
        learning_rate: Float.
        memory_bytes: Integer, the most that a replica had allocated.
        seconds_left: Float, until the end of the `fit`.
    """

    epoch: int
    epochs: int
    examples_per_second: float | None = None
    num_replicas: int = 1
    efficiency: float | None = None
    input_wait_share: float | None = None
    mfu: float | None = None
    learning_rate: float | None = None
    memory_bytes: int | None = None
    seconds_left: float | None = None

    @property
    def title(self) -> str:
        return f"epoch {self.epoch}/{self.epochs}"

    @property
    def figures(self) -> str:
        """The figures, separated by commas.

        Example:

        >>> Line(1, 5, 1234.0, 2, efficiency=0.9, seconds_left=75).figures
        '1,234 examples/s (617 per replica, 90 % efficient), 1:15 left'
        """
        return ", ".join(self._parts())

    def _parts(self) -> list[str]:
        rate, parts = self.examples_per_second, []
        if rate is None:
            parts.append("no step measured yet")
        else:
            details = []
            if self.num_replicas > 1:
                details.append(f"{short(rate / self.num_replicas)} per replica")
            if self.efficiency is not None:
                details.append(f"{self.efficiency:.0%} efficient")
            text = f" ({', '.join(details)})" if details else ""
            parts.append(f"{short(rate)} examples/s{text}")
        if self.input_wait_share is not None:
            parts.append(f"{self.input_wait_share:.0%} waiting for input")
        if self.mfu is not None:
            parts.append(f"{self.mfu:.1%} MFU")
        if self.learning_rate is not None:
            parts.append(f"learning rate {self.learning_rate:.4g}")
        if self.memory_bytes is not None:
            parts.append(f"{self.memory_bytes / 1e9:.2f} GB per replica")
        if self.seconds_left is not None:
            parts.append(f"{_duration(self.seconds_left)} left")
        return [part.replace("%", " %") for part in parts]


def short(value: float) -> str:
    """Formats a rate: three digits, a large one without decimals.

    Example:

    >>> short(0.012345), short(12345.6)
    ('0.0123', '12,346')
    """
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
