"""Measures programs in other processes, and compares."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from tests.memory import allocator

ON_HOST = " with slots on the host"
"""End of the names of programs with `offload`."""

TABLE = (
    "dense",
    f"dense{ON_HOST}",
    "dense that is computed again",
    "dense with recompute",
    "gpt like in float32",
    "bert like",
    "vision transformer",
    "grouped query attention",
    "rotary attention by hand",
    "translating transformer",
    "low rank adapters",
    "mixture of experts",
    "two best experts",
    "u net",
    "super resolution",
    "dilated segmentation",
    "shifted windows",
    "wavenet",
    "volumes",
    "clip",
    "triplets",
    "barlow twins",
    "graph of points",
    "distillation",
    "unrolled lstm",
    "stacked lstm with a mask",
    "simple cells in a stack",
    "simclr",
    "own loop over time",
)
"""Programs of the table."""

NEAR = 0.1


def records(parts=(), names=TABLE):
    """Yields a dictionary for each program; see `child.measured`.

    Args:
        parts: Parts of names to choose by; empty for all.
        names: Names to choose from.
    """
    chosen = [
        name
        for name in names
        if not parts or any(part.lower() in name for part in parts)
    ]
    with tempfile.TemporaryDirectory() as folder:
        environment = allocator.environment(pathlib.Path(folder))
        with subprocess.Popen(
            [sys.executable, "-m", "tests.memory.child", *chosen],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as child:
            for line in child.stdout:
                if line.startswith("{"):
                    yield json.loads(line)


def errors(record):
    """Relative errors of a prediction: against outputs, and against all."""
    predicted = record["predicted"]
    return [predicted / record[name] - 1 for name in ("outputs", "all")]


def is_near(record):
    """Whether a prediction is at most 10 % off one of the two."""
    return "error" not in record and min(map(abs, errors(record))) <= NEAR


def row(record):
    """A line of the table."""
    if "error" in record:
        return f"| {record['name']} | {record['error']} |"
    sizes = [
        f"{record[name] / 2**20:.2f}"
        for name in ("predicted", "outputs", "all")
    ]
    state = "equal" if record["state"] == record["held"] else "differs"
    note = ", sizes assumed" if record["assumed"] else ""
    cells = [
        record["name"],
        str(record["rows"]),
        *sizes,
        *(f"{error:+.1%}" for error in errors(record)),
        f"{'yes' if is_near(record) else 'no'}{note}",
        state,
    ]
    return f"| {' | '.join(cells)} |"
