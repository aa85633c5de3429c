"""Guards the speed of steps: holds them against ratios that were stored.

    python -m benchmarks.guard --store --folder=ratios   # before a change
    python -m benchmarks.guard --folder=ratios           # status 1 if slower

Plain Keras on one device is the yardstick: what a step and the first step take
of CPU time, and the peak memory, are multiples of its own, on the same machine
and in the same round. What is more than `--limit` above its stored ratio is
measured twice more; the median of the three counts. Kernels differ between CPUs
(oneDNN's are used on some), so ratios of another machine are a hint only: that is
said.
"""

import json
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
WORKLOADS = ("transformer", "resnet50", "deep_narrow", "lstm", "embeddings")
FIGURES = {
    "host_cpu_ms_per_step": "step",
    "cpu_seconds_to_first_step": "first step",
    "peak_memory_mb": "memory",
}
STORED = "guard.json"
_AGAIN = 2


def guard(
    workloads: Sequence[str] = WORKLOADS,
    contenders: Sequence[str] = CONTENDERS,
    replica_counts: Sequence[int] = (2, 4),
    rounds: int = 1,
    steps: int = 10,
    limit: float = 0.15,
    store: bool = False,
    folder: str = "guard",
):
    """Measures ratios, and compares them with those that are stored.

    Args:
        workloads: Sequence of names of `benchmarks.workloads.WORKLOADS`.
        contenders: Sequence of names of `benchmarks.contenders.CONTENDERS`.
        replica_counts: Sequence of integers, numbers of replicas.
        rounds: Integer, runs of each; medians count.
        steps: Integer, steps per epoch; see `benchmarks.runs.run`.
        limit: Float, by how much of it a ratio may be above the stored one.
        store: Boolean, store the ratios instead of comparing them.
        folder: String, where `guard.json` is; made by `store`.

    Returns:
        List of dictionaries: `name`, `figure`, `ratio`, `stored` (or `None`)
        and `is_slower`.

    Raises:
        InputError: If an argument is invalid, nothing is stored, or a run
            fails.
    """
    path = pathlib.Path(folder, STORED)
    limit = checked_number(limit, "limit")
    stored = {} if store else _read(path)

    def measured(workloads, contenders, counts, rounds):
        with tempfile.TemporaryDirectory(prefix="kerasmgpu-guard-") as name:
            report = runs.run(
                workloads=workloads,
                contenders=(YARDSTICK, *contenders),
                replica_counts=counts,
                rounds=rounds,
                steps=steps,
                virtual_devices=True,
                output_dir=str(pathlib.Path(name, "runs")),
            )
        return ratios(report["runs"])

    found = measured(workloads, contenders, replica_counts, rounds)
    if store:
        known = _read(path)["ratios"] if path.exists() else {}
        path.parent.mkdir(parents=True, exist_ok=True)
        medians = {
            name: {kind: statistics.median(each) for kind, each in one.items()}
            for name, one in found.items()
        }
        content = {
            "machine": machine.describe([]),
            "versions": machine.versions(),
            "ratios": known | medians,
        }
        write_text(path, json.dumps(content, indent=1) + "\n")
        return list(_rows(found, {}, limit))
    if stored["machine"]["cpu"] != machine.describe([])["cpu"]:
        print(
            f"The stored ratios are of another CPU: {stored['machine']['cpu']}"
        )
    slower = {
        row["name"]
        for row in _rows(found, stored["ratios"], limit)
        if row["is_slower"]
    }
    for name in sorted(slower):
        workload, contender, count = name.split()
        again = measured((workload,), (contender,), (int(count),), _AGAIN)
        for kind, values in again[name].items():
            found[name][kind] += values
    return list(_rows(found, stored["ratios"], limit))


def ratios(made):
    """Returns lists of ratios, by name and figure.

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
    yardsticks = {
        (run["workload"], run["round"]): run["result"]
        for run in made
        if run["contender"] == YARDSTICK
    }
    found = {}
    for run in made:
        if run["contender"] == YARDSTICK:
            continue
        yardstick = yardsticks[run["workload"], run["round"]]
        name = "{workload} {contender} {replicas}".format(**run)
        by_kind = found.setdefault(name, {kind: [] for kind in FIGURES})
        for kind, values in by_kind.items():
            values.append(run["result"][kind] / yardstick[kind])
    return found


def _read(path):
    if not path.exists():
        raise InputError(
            f"No ratios are stored in {path}. Store them at the commit with "
            "which you compare: python -m benchmarks.guard --store"
        )
    return json.loads(path.read_text("utf-8"))


def _rows(found, stored, limit):
    """Yields a row per name and figure; see `guard`."""
    for name, by_kind in found.items():
        for kind, values in by_kind.items():
            ratio = statistics.median(values)
            before = stored.get(name, {}).get(kind)
            yield {
                "name": name,
                "figure": FIGURES[kind],
                "ratio": ratio,
                "stored": before,
                "is_slower": before is not None
                and ratio > before * (1 + limit),
            }


def print_rows(rows):
    """Prints a table: each ratio, the stored one, and what became slower."""
    print("| model, contender, replicas | figure | × one device | stored | |")
    print("|---|---|---:|---:|---|")
    for row in rows:
        before = "–" if row["stored"] is None else f"{row['stored']:.2f}"
        verdict = "SLOWER" if row["is_slower"] else ""
        print(
            f"| {row['name']} | {row['figure']} | {row['ratio']:.2f} | "
            f"{before} | {verdict} |"
        )


def main(argv):
    """Guards with the flags as keywords."""
    flag_parsing.require_flags_only(argv)
    rows = guard(**flag_parsing.arguments(guard))
    print_rows(rows)
    sys.exit(any(row["is_slower"] for row in rows))


def define_flags(flag_values):
    """Defines the flags of this command; each is a keyword of `guard`."""
    flag_parsing.define_arguments(guard, flag_values)


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
