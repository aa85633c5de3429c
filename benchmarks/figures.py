"""The arithmetic of a benchmark; time is an argument."""

import dataclasses
import statistics

import numpy as np

FIGURES = (
    "examples_per_second",
    "wall_ms_per_step",
    "host_cpu_ms_per_step",
    "seconds_to_first_step",
    "peak_memory_mb",
)
"""What each run measures."""

BASELINES = ("one_device", "one_device_xla", "stock", "kerasmgpu")
"""Contenders whose examples per second the others' are divided by; the last
one's only those of its own variants, such as `kerasmgpu_xla`."""


@dataclasses.dataclass(frozen=True)
class Epoch:
    """Some steps.

    Attributes:
        wall_seconds: Float, how long they took.
        cpu_seconds: Float, CPU time of all threads of the process.
    """

    wall_seconds: float
    cpu_seconds: float


def over_processes(epochs_of_each):
    """The epochs of several processes that train one model together.

    Args:
        epochs_of_each: Sequence with each process's list of `Epoch`.

    Returns:
        List of `Epoch`: as long as the slowest took, and the CPU time of all.
    """
    return [
        Epoch(
            max(epoch.wall_seconds for epoch in same),
            sum(epoch.cpu_seconds for epoch in same),
        )
        for same in zip(*epochs_of_each)
    ]


def of_epochs(epochs, steps, global_batch_size):
    """The medians of some epochs of warm steps.

    Args:
        epochs: Sequence of `Epoch`.
        steps: Integer, steps of each.
        global_batch_size: Integer, rows of each step.

    Returns:
        Dictionary of `examples_per_second`, `wall_ms_per_step` and
        `host_cpu_ms_per_step`.

    Example:

    >>> of_epochs([Epoch(2.0, 3.0)], steps=10, global_batch_size=5)
    {'examples_per_second': 25.0, 'wall_ms_per_step': 200.0, \
'host_cpu_ms_per_step': 300.0}
    """
    wall = statistics.median(epoch.wall_seconds for epoch in epochs) / steps
    cpu = statistics.median(epoch.cpu_seconds for epoch in epochs) / steps
    return {
        "examples_per_second": global_batch_size / wall,
        "wall_ms_per_step": wall * 1000,
        "host_cpu_ms_per_step": cpu * 1000,
    }


def spread(values):
    """Median and quartiles, as JSON can hold them."""
    lower, median, upper = np.percentile(values, (25, 50, 75)).tolist()
    return {"median": median, "lower": lower, "upper": upper}


def summarise(runs):
    """One row per workload, number of replicas and contender.

    Args:
        runs: List of dictionaries with `workload`, `contender`, `replicas`,
            `round` and either `result` (with `FIGURES`) or `failed`, as
            `runs.run` makes them.

    Returns:
        List of dictionaries in the order in which they first appear: what a
        run was, `runs` (how many ended well), the spread of each figure,
        `ratios` to each of `BASELINES` that there is, and `failed` where a
        run failed (the reason of the last).
    """
    groups = {}
    for run in runs:
        key = (run["workload"], run["contender"], run["replicas"])
        groups.setdefault(key, []).append(run)
    rows = []
    for (workload, contender, replicas), members in groups.items():
        good = [run for run in members if "result" in run]
        row = {
            "workload": workload,
            "contender": contender,
            "replicas": replicas,
            "runs": len(good),
        }
        if good:
            for name in FIGURES:
                row[name] = spread([run["result"][name] for run in good])
        row["ratios"] = _ratios(good, groups, workload, contender, replicas)
        failures = [run["failed"] for run in members if "failed" in run]
        if failures:
            row["failed"] = failures[-1]
        rows.append(row)
    return rows


def _ratios(good, groups, workload, contender, replicas):
    """Spread of the ratios of examples per second within the same round."""
    ratios = {}
    for baseline in BASELINES:
        if baseline == "kerasmgpu" and not contender.startswith("kerasmgpu_"):
            continue
        count = 1 if baseline.startswith("one_device") else replicas
        others = {
            run["round"]: run["result"]["examples_per_second"]
            for run in groups.get((workload, baseline, count), ())
            if "result" in run
        }
        values = [
            run["result"]["examples_per_second"] / others[run["round"]]
            for run in good
            if run["round"] in others
        ]
        if values and baseline != contender:
            ratios[baseline] = spread(values)
    return ratios


def disagreements(runs, tolerance=1e-3):
    """Workloads whose contenders did not have the same first loss.

    They start from the same weights with the same batch: another loss means
    another model, and a comparison of nothing.

    Args:
        runs: See `summarise`.
        tolerance: Float, relative. Defaults to 1e-3, room for what float32
            sums lose in another order.

    Returns:
        List of one line each.
    """
    first, lines = {}, {}
    for run in runs:
        if "result" not in run:
            continue
        workload, loss = run["workload"], run["result"]["first_loss"]
        name = f"{run['contender']} ({run['replicas']})"
        other_name, other = first.setdefault(workload, (name, loss))
        # A loss that is not a number is near to nothing.
        if not abs(loss - other) <= tolerance * abs(other):
            lines[workload] = (
                f"{workload}: the first step's loss is {other:.6g} for "
                f"{other_name} and {loss:.6g} for {name}, so they are not the "
                "same model"
            )
    return list(lines.values())
