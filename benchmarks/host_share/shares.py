"""Divides the CPU time of a step, by what TensorFlow's profiler has recorded.

A kernel is recorded if it usually takes more than 5,000 cycles; TensorFlow runs
the others, and records none of them, between two recorded ones. So they count to
`"executor"`, what is left of a step.
"""

import collections
import math
import statistics

PARTS = (
    "kernels",
    "sums",
    "slices",
    "copies",
    "input",
    "Python",
    "executor",
)
"""Parts of a step, in the order of the table's columns."""

_OF_OPERATIONS = {
    "AddN": "sums",
    "Pack": "sums",
    "Unpack": "sums",
    "ConcatV2": "sums",
    "Slice": "slices",
    "StridedSlice": "slices",
    "Split": "slices",
    "SplitV": "slices",
    "_Send": "copies",
    "_Recv": "copies",
    "IteratorGetNext": "input",
    "IteratorGetNextOp": "input",
}
"""Parts of types of operations; others that are recorded are `"kernels"`."""


def divide(cpu, python, threads, steps):
    """Returns the milliseconds of each part of a step.

    A span of a kernel is its CPU time, if each of TensorFlow's pools has one
    thread, unless another program had the core meanwhile. So the median of all
    spans of a name counts for each.

    Args:
        cpu: Float, CPU time of a step that isn't recorded, in milliseconds.
        python: Float, that of the thread that calls it.
        threads: Dictionary from names of threads to lists of `(start, seconds,
            name)`, their events; without those of the calling thread.
        steps: Integer, number of steps that were recorded.

    Returns:
        Dictionary from `PARTS` to floats, in milliseconds.
    """
    spans = collections.defaultdict(list)
    for events in threads.values():
        for name, seconds in _alone(events):
            spans[name].append(seconds)
    made = dict.fromkeys(PARTS, 0.0)
    made["Python"] = python
    for name, seconds in spans.items():
        part = part_of(name)
        if part is not None:
            each = statistics.median(seconds) * 1e3
            made[part] += each * len(seconds) / steps
    made["executor"] = cpu - sum(made.values())
    return made


def part_of(name):
    """The part of a step of an event; `None` for the executor's.

    Example:

    >>> part_of("replica_0/AddN:AddN"), part_of("fusion.3")
    ('sums', 'kernels')
    """
    if name.startswith("Iterator"):
        return "input"
    if "::" in name or name.startswith(" "):
        return None
    _, _, operation = name.rpartition(":")
    return _OF_OPERATIONS.get(operation.removeprefix("_Mkl"), "kernels")


def _alone(events):
    """Yields the events of a thread, without the seconds of those inside."""
    open_ones = []
    for start, seconds, name in sorted(
        events, key=lambda event: (event[0], -event[1])
    ):
        while open_ones and open_ones[-1][0] <= start:
            yield open_ones.pop()[1:]
        if open_ones:
            open_ones[-1][2] -= seconds
        open_ones.append([start + seconds, name.partition("#")[0], seconds])
    yield from (one[1:] for one in open_ones)


def markdown(rows):
    """Returns the table.

    Where recorded kernels took longer than a step that isn't recorded, how it
    divides into kernels and executor isn't known: NaN.

    Args:
        rows: List of dictionaries of `workload`, `contender`, `replicas`, `cpu`
            and `parts`.
    """
    columns = ("workload", "contender", "replicas", "CPU ms/step", *PARTS)
    lines = [columns, ("---",) * len(columns)]
    for row in rows:
        parts = dict(row["parts"])
        if parts["executor"] < 0:
            parts["kernels"] = parts["executor"] = math.nan
        parts = [f"{parts[name]:.1f}" for name in PARTS]
        names = row["workload"], row["contender"], row["replicas"]
        lines.append((*names, f"{row['cpu']:.1f}", *parts))
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
