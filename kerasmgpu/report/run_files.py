"""Reads the folders of runs; what is missing or damaged leaves the rest."""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from kerasmgpu.callbacks import json_lines
from kerasmgpu.errors import InputError, listed, one_line
from kerasmgpu.stores.places import Place, checked_place
from kerasmgpu.stores.store_path import StorePath

Record = dict[str, Any]

_FILES = ("run.json", "history.jsonl", "result.json")
"""A folder with one of these holds a run."""

_TYPES: dict[str, type | tuple[type, ...]] = {
    "replicas": int,
    "workers": int,
    "devices": list,
    "strategy": dict,
    "versions": dict,
    "optimizer": dict,
    "parameters": dict,
    "state_bytes": dict,
    "sent_per_step": list,
    "layers": list,
    "global_batch_size": int,
    "examples_per_epoch": int,
    "epochs": int,
}
"""Keys of `run.json` that the report computes with."""


@dataclasses.dataclass
class Run:
    """What the files of one folder tell.

    Attributes:
        folder: `pathlib.Path`, or a `stores.store_path.StorePath`.
        name: String by which the report calls it, unique in the report.
        facts: Dictionary of `run.json`, completed from `result.json`.
        flags: Dictionary of a recipe's flags.
        history: List of records of the epochs, by epoch.
        steps: List of histograms of step times, one per epoch.
        times: List of seconds by what they went to.
        devices: List of samples of the devices, by time.
        problems: List of strings, what could not be read.
    """

    folder: Place
    name: str = ""
    facts: Record = dataclasses.field(default_factory=dict)
    flags: dict[str, str] = dataclasses.field(default_factory=dict)
    history: list[Record] = dataclasses.field(default_factory=list)
    steps: list[Record] = dataclasses.field(default_factory=list)
    times: list[Record] = dataclasses.field(default_factory=list)
    devices: list[Record] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def replicas(self) -> int:
        """Number of replicas; 1 where no file tells."""
        return max(1, self.facts.get("replicas", 1))

    def values(self, name: str) -> list[tuple[float, float]]:
        """`(epoch, figure)` of the epochs that have a figure; NaN for null."""
        return [
            (record["epoch"], number(record[name]))
            for record in self.history
            if name in record
        ]


def read(folders: Sequence[str | os.PathLike[str] | StorePath]) -> list[Run]:
    """Reads runs in the order of their folders, and gives each a name.

    Args:
        folders: Sequence of folders, or of their URLs, each of a run, or of
            several: a folder of folders, such as that of a scaling report,
            stands for its runs.

    Raises:
        InputError: If there is no folder, one has no run, or is given twice.
    """
    if not folders:
        raise InputError(
            "give the folder of a run, such as runs/1, or several of them"
        )
    paths = [
        path
        for one in folders
        for path in _runs_of(checked_place(one, "report"))
    ]
    resolved = [path.resolve() for path in paths]
    for position, path in enumerate(resolved):
        if path in resolved[:position]:
            raise InputError(
                f"the same folder is given twice. Received: {paths[position]}"
            )
    runs = [_read_run(path) for path in paths]
    for run, name in zip(runs, _names(resolved)):
        run.name = name
    return runs


def number(value: Any) -> float:
    """A number of a file as a float; NaN for everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _runs_of(folder: Place) -> list[Place]:
    if any((folder / name).is_file() for name in _FILES):
        return [folder]
    # A recipe may train several times, as a scaling report does.
    found: list[Place] = [
        f for f in folder.glob("*/") if any((f / n).is_file() for n in _FILES)
    ]
    if found:
        return sorted(found, key=_by_name)
    raise InputError(
        f"no run in {folder}. Expected a folder with run.json or "
        "history.jsonl, which kerasmgpu.callbacks.RunRecord writes, or the "
        "--output_dir of a recipe or of scaling_report"
    )


def _by_name(path: Place) -> tuple[int, str]:
    return len(path.name), path.name


def _names(paths: Sequence[Place]) -> list[str]:
    """The last parts of paths, as many as make each name unique."""
    names: list[str] = []
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            break
    return names


def _read_run(folder: Place) -> Run:
    run = Run(folder)
    facts = _read(run, "run.json", _object, {})
    result = _read(run, "result.json", _object, {})
    # Of a folder without `run.json`: the recipe's final table.
    for name in ("replicas", "devices", "global_batch_size", "learning_rate"):
        if name in result:
            facts.setdefault(name, result[name])
    for name, expected in _TYPES.items():
        value = facts.get(name)
        if isinstance(value, expected) and not isinstance(value, bool):
            continue
        if facts.pop(name, None) is not None:
            run.problems.append(
                f"run.json: {name} has an unexpected type; it is left out"
            )
    for name in ("sent_per_step", "layers"):
        facts[name] = [
            one for one in facts.get(name, ()) if isinstance(one, dict)
        ]
    run.facts = facts
    run.flags = _read(run, "flags.txt", _flags, {})
    by_epoch = {
        record["epoch"]: record
        for record in _read(run, "history.jsonl", _lines(run), [])
        if number(record.get("epoch")) >= 0
    }
    run.history = [by_epoch[epoch] for epoch in sorted(by_epoch)]
    run.steps = _read(run, "steps.jsonl", _lines(run), [])
    run.times = _read(run, "times.jsonl", _lines(run), [])
    # Each worker writes its own: `devices.worker1.jsonl`.
    samples = [
        sample
        for name in sorted(one.name for one in folder.glob("devices*.jsonl"))
        for sample in _read(run, name, _lines(run), [])
    ]
    run.devices = sorted(
        (one for one in samples if math.isfinite(number(one.get("time")))),
        key=lambda one: one["time"],
    )
    return run


def _read(
    run: Run, name: str, parse: Callable[[str, str], Any], missing: Any
) -> Any:
    """What a file holds; `missing` if there is none, or it is damaged."""
    try:
        return parse(name, (run.folder / name).read_text("utf-8"))
    except FileNotFoundError:
        return missing
    except (OSError, ValueError, RecursionError) as error:
        reason = one_line(error, 120)
        run.problems.append(f"{name} can't be read ({reason}); it is left out")
        return missing


def _object(name: str, text: str) -> Record:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


def _flags(name: str, text: str) -> dict[str, str]:
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line[2:].partition("=") for line in lines if line.startswith("--")]
    return {flag: value for flag, _, value in pairs}


def _lines(run: Run) -> Callable[[str, str], list[Record]]:
    """A parser of JSON lines that tells the run's problems with them."""

    def parse(name: str, text: str) -> list[Record]:
        records, damaged = json_lines.parse(text)
        if damaged:
            run.problems.append(
                f"{name}: not a JSON object, left out: line "
                + listed(damaged, 5)
            )
        return records

    return parse
