"""Guards the speed of steps: holds them against figures that were stored.

    python -m benchmarks.guard --store --folder=figures     # before a change
    python -m benchmarks.guard --folder=figures             # status 1 if slower

Plain Keras on one device is the yardstick: the multiples of its stored figures, of
which the median over the models counts, are how fast this machine is now. What a
step and the first step take of CPU time, and the peak memory, must be as many
times the stored ones. What is above by more than `LIMITS` is measured twice more,
and the median of the three counts. TensorFlow has one thread per pool meanwhile.
Kernels differ between CPUs (oneDNN's are used on some), so on another kind of CPU
than that of the stored figures each model has its own yardstick, and the limits
are at least `_LIMIT_ELSEWHERE`.

`.ci/run` holds the plain strategy against `results/guard.json`, with that limit on
any machine: it finds a step that became twice as slow, and no 20 %.
"""

import json
import os
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Sequence

from benchmarks import machine, runs
from kerasmgpu.atomic_files import write_text
from kerasmgpu.commands import flag_parsing
from kerasmgpu.commands.command_line import start
from kerasmgpu.errors import InputError, checked_number

YARDSTICK = "one_device"
CONTENDERS = ("kerasmgpu", "kerasmgpu_weights")
STEPS = {
    "transformer": 6,
    "resnet50": 3,
    "deep_narrow": 120,
    "lstm": 30,
    "embeddings": 60,
}
"""Steps of an epoch of each workload: a quarter of a second or more."""

FIGURES = {
    "least_cpu_ms_per_step": "step",
    "cpu_seconds_to_first_step": "first step",
    "peak_memory_mb": "memory",
}
"""Keys of a run's result, in milliseconds, seconds and MB, and their names."""

LIMITS = {"step": 0.25, "first step": 0.25, "memory": 0.1}
"""By how much of it a figure may be above the stored one. On one machine, steps of
four runs differed by up to 10 %, but for one in ten that other programs disturbed;
first steps by 20 %, memory by 1 %."""

_LEAST_SECONDS = 1.0
"""CPU time of a first step below which it is mostly noise."""

_LIMIT_ELSEWHERE = 0.6

STORED = "guard.json"
_AGAIN = 2

_ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
"""Threads that wait for work spin, and that counts as CPU time."""


def guard(
    workloads: Sequence[str] = tuple(STEPS),
    contenders: Sequence[str] = CONTENDERS,
    replica_counts: Sequence[int] = (2, 4),
    rounds: int = 1,
    steps: int | None = None,
    limit: float | None = None,
    store: bool = False,
    folder: str = "guard",
):
    """Measures figures, and compares them with those that are stored.

    Args:
        workloads: Sequence of names of `benchmarks.workloads.WORKLOADS`.
        contenders: Sequence of names of `benchmarks.contenders.CONTENDERS`.
        replica_counts: Sequence of integers, numbers of replicas.
        rounds: Integer, runs of each; medians count.
        steps: Integer, steps per epoch; see `benchmarks.runs.run`. Default:
            those of `STEPS`.
        limit: Float, by how much of it a figure may be above the stored one.
            Default: `LIMITS`.
        store: Boolean, store the figures instead of comparing them.
        folder: String, where `guard.json` is; made by `store`.

    Returns:
        List of dictionaries: `name`, `figure`, `value`, `expected` by what is
        stored (or `None`) and `is_slower`.

    Raises:
        InputError: If an argument is invalid, nothing is stored, or a run
            fails.
    """
    path = pathlib.Path(folder, STORED)
    limits = LIMITS
    if limit is not None:
        limits = dict.fromkeys(LIMITS, checked_number(limit, "limit"))
    stored = {} if store else _read(path)

    def measured(workloads, contenders, counts, rounds):
        made = []
        for workload in workloads:
            with tempfile.TemporaryDirectory(prefix="kerasmgpu-guard-") as name:
                report = runs.run(
                    workloads=(workload,),
                    contenders=contenders,
                    replica_counts=counts,
                    rounds=rounds,
                    steps=steps or STEPS.get(workload, 10),
                    virtual_devices=True,
                    output_dir=str(pathlib.Path(name, "runs")),
                )
            made += report["runs"]
        return figures_of(made)

    all_contenders = YARDSTICK, *contenders
    found = measured(workloads, all_contenders, replica_counts, rounds)
    own = machine.describe([])
    if store:
        before = _read(path) if path.exists() else {"machine": {}}
        is_same = before["machine"].get("cpu_flags") == own["cpu_flags"]
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "machine": own,
            "versions": machine.versions(),
            "figures": (before["figures"] if is_same else {}) | _medians(found),
        }
        write_text(path, json.dumps(content, indent=1) + "\n")
        return _rows(found, {}, {}, limits)
    other, before = stored["machine"], stored["figures"]
    speed = _speed(found, before)
    if own["cpu_flags"] != other["cpu_flags"]:
        speed = _speed_of_each(found, before)
        limits = {
            kind: max(limit, _LIMIT_ELSEWHERE) for kind, limit in limits.items()
        }
        print(
            f"The stored figures are of another kind of CPU, {other['cpu']}: "
            f"a figure may be {max(limits.values()):.0%} above."
        )
    slower = {
        row["name"]
        for row in _rows(found, before, speed, limits)
        if row["is_slower"]
    }
    for name in sorted(slower):
        workload, contender, count = name.split()
        again = measured((workload,), (contender,), (int(count),), _AGAIN)
        for kind, values in again[name].items():
            found[name][kind] += values
    return _rows(found, before, speed, limits)


def figures_of(made):
    """Returns lists of `FIGURES`, by name and key.

    Args:
        made: List of runs, as `benchmarks.runs.run` makes them.

    Raises:
        InputError: If a run failed.
    """
    failed = [run for run in made if "failed" in run]
    if failed:
        raise InputError(
            f"{failed[0]['workload']}, {failed[0]['contender']} failed: "
            f"{failed[0]['failed']}"
        )
    found = {}
    for run in made:
        name = "{workload} {contender} {replicas}".format(**run)
        by_kind = found.setdefault(name, {kind: [] for kind in FIGURES})
        for kind, values in by_kind.items():
            values.append(run["result"][kind])
    return found


def _medians(found):
    return {
        name: {kind: statistics.median(each) for kind, each in one.items()}
        for name, one in found.items()
    }


def _is_yardstick(name):
    return name.split()[1] == YARDSTICK


def _speed(found, stored):
    """Returns the median over the models of `_speed_of_each`, for each model."""
    each = _speed_of_each(found, stored)
    return dict.fromkeys(
        each,
        {
            kind: statistics.median(speed[kind] for speed in each.values())
            for kind in FIGURES
            if each
        },
    )


def _speed_of_each(found, stored):
    """Returns, by model and key, what yardsticks' figures are times the stored ones."""
    return {
        name.split()[0]: {
            kind: medians[kind] / stored[name][kind] for kind in FIGURES
        }
        for name, medians in _medians(found).items()
        if _is_yardstick(name) and name in stored
    }


def _read(path):
    if not path.exists():
        raise InputError(
            f"No figures are stored in {path}. Store them at the commit with "
            "which you compare: python -m benchmarks.guard --store"
        )
    return json.loads(path.read_text("utf-8"))


def _rows(found, stored, speed, limits):
    """Returns a row per name and figure; see `guard`."""
    rows = []
    for name, medians in _medians(found).items():
        for kind, value in medians.items():
            expected = None
            if name in stored and not _is_yardstick(name):
                expected = stored[name][kind] * speed[name.split()[0]][kind]
            is_noise = FIGURES[kind] == "first step" and value < _LEAST_SECONDS
            rows.append(
                {
                    "name": name,
                    "figure": FIGURES[kind],
                    "value": value,
                    "expected": expected,
                    "is_slower": expected is not None
                    and not is_noise
                    and value > expected * (1 + limits[FIGURES[kind]]),
                }
            )
    return rows


def print_rows(rows):
    """Prints a table: each figure, the expected one, and what became slower."""
    print("| model, contender, replicas | figure | now | expected | |")
    print("|---|---|---:|---:|---|")
    for row in rows:
        before = "–" if row["expected"] is None else f"{row['expected']:.2f}"
        verdict = "SLOWER" if row["is_slower"] else ""
        print(
            f"| {row['name']} | {row['figure']} | {row['value']:.2f} | "
            f"{before} | {verdict} |"
        )


def main(argv):
    """Guards with the flags as keywords."""
    flag_parsing.require_flags_only(argv)
    os.environ.update(_ONE_THREAD)  # Child processes inherit it.
    rows = guard(**flag_parsing.arguments(guard))
    print_rows(rows)
    sys.exit(any(row["is_slower"] for row in rows))


def define_flags(flag_values):
    """Defines the flags of this command; each is a keyword of `guard`."""
    flag_parsing.define_arguments(guard, flag_values)


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
