"""Statistics of benchmark runs; pure functions."""

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
"""Names of the figures that each run measures."""

SECOND_START = "seconds_to_first_step_of_second_start"
"""Name of the figure of runs that are started twice."""

BASELINES = ("one_device", "one_device_xla", "stock", "kerasmgpu")
"""Denominators of the ratios of examples per second; the last one is used for
its variants only, such as `kerasmgpu_xla`."""


@dataclasses.dataclass(frozen=True)
class Epoch:
    """Times of one epoch.

    Attributes:
        wall_seconds: Float, wall-clock time.
        cpu_seconds: Float, CPU time of all threads of the process.
    """

    wall_seconds: float
    cpu_seconds: float


def over_processes(epochs_of_each):
    """Combines the epochs of several processes that train one model.

    Args:
        epochs_of_each: Sequence with each process's list of `Epoch`.

    Returns:
        List of `Epoch`: maximum of the wall times, sum of the CPU times.
    """
    return [
        Epoch(
            max(epoch.wall_seconds for epoch in same),
            sum(epoch.cpu_seconds for epoch in same),
        )
        for same in zip(*epochs_of_each)
    ]


def of_epochs(epochs, steps, global_batch_size):
    """Returns the medians over epochs of warm steps.

    Args:
        epochs: Sequence of `Epoch`.
        steps: Integer, steps per epoch.
        global_batch_size: Integer, rows per step.

    Returns:
        Dictionary of `examples_per_second`, `wall_ms_per_step` and
        `host_cpu_ms_per_step`; and `least_cpu_ms_per_step`, that of the epoch
        which other programs disturbed least.

    Example:

    >>> of_epochs([Epoch(2.0, 3.0)], steps=10, global_batch_size=5)
    {'examples_per_second': 25.0, 'wall_ms_per_step': 200.0, \
'host_cpu_ms_per_step': 300.0, 'least_cpu_ms_per_step': 300.0}
    """
    wall = statistics.median(epoch.wall_seconds for epoch in epochs) / steps
    cpus = [epoch.cpu_seconds / steps for epoch in epochs]
    return {
        "examples_per_second": global_batch_size / wall,
        "wall_ms_per_step": wall * 1000,
        "host_cpu_ms_per_step": statistics.median(cpus) * 1000,
        "least_cpu_ms_per_step": min(cpus) * 1000,
    }


def spread(values):
    """Returns median and quartiles as a dictionary for JSON."""
    lower, median, upper = np.percentile(values, (25, 50, 75)).tolist()
    return {"median": median, "lower": lower, "upper": upper}


def summarise(runs):
    """Returns one row per workload, number of replicas and contender.

    Args:
        runs: List of dictionaries with `workload`, `contender`, `replicas`,
            `round` and either `result` (with `FIGURES`) or `failed`, as
            `runs.run` makes them.

    Returns:
        List of dictionaries in the order of their first runs: workload,
        contender and replicas, `runs` (number of successful runs), the spread
        of each figure, `ratios` to each of the present `BASELINES`, and
        `failed`, the reason of the last failed run, if any.
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
            for name in (*FIGURES, SECOND_START):
                if any(name not in run["result"] for run in good):
                    continue
                row[name] = spread([run["result"][name] for run in good])
        row["ratios"] = _ratios(good, groups, workload, contender, replicas)
        failures = [run["failed"] for run in members if "failed" in run]
        if failures:
            row["failed"] = failures[-1]
        rows.append(row)
    return rows


def _ratios(good, groups, workload, contender, replicas):
    """Returns the spread of the same-round ratios of examples per second."""
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
    """Returns workloads whose contenders differ in their first loss.

    All start from the same weights with the same batch, so a different loss
    means a different model, whose figures can't be compared.

    Args:
        runs: See `summarise`.
        tolerance: Float, relative. Defaults to 1e-3, for the rounding of
            float32 sums in another order.

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
        # Written so that a NaN loss counts as different.
        if not abs(loss - other) <= tolerance * abs(other):
            lines[workload] = (
                f"{workload}: the first step's loss is {other:.6g} for "
                f"{other_name} and {loss:.6g} for {name}, so they are not the "
                "same model"
            )
    return list(lines.values())
