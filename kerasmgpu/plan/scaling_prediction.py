"""Predicts the step for several replica counts, and prints the table."""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from kerasmgpu.atomic_files import write_text
from kerasmgpu.errors import checked_counts, checked_number
from kerasmgpu.plan import fitting, tables
from kerasmgpu.plan.mesh_time import MeshPrediction
from kerasmgpu.plan.step_time import Machines, Step, last_that_helps, predict

REPLICA_COUNTS = tuple(2**power for power in range(1, 11))


def plan(
    step: Step,
    machines: Machines,
    replica_counts: Sequence[int | str] = REPLICA_COUNTS,
    global_batch_size: int | None = None,
    worth: float = 0.1,
) -> dict[str, Any]:
    """Predicts the step for several numbers of replicas.

    Args:
        step: `step_time.Step` of one replica.
        machines: `step_time.Machines`.
        replica_counts: Sequence of integers; 1 is added if missing.
            Defaults to 2, 4, 8 … 1024.
        global_batch_size: Integer (strong scaling). Default: `step.rows` for
            every replica (weak scaling).
        worth: Float, see `step_time.last_that_helps`. Defaults to 0.1.

    Returns:
        JSON-serialisable dictionary: `scaling`, `step`, `predictions`
        (dictionaries of `step_time.Prediction`), `last_that_helps` and
        `verdict`.

    Raises:
        InputError: If a number is invalid.

    Example:

    ```python
    step = Step(rows=64, compute_seconds=0.3, reduced_bytes=4 * 25.6e6)
    machines = Machines(8, link("nvlink3"), link("100gbit"))
    print(plan(step, machines, replica_counts=(2, 16))["verdict"])
    ```
    """
    counts = sorted({1, *checked_counts(replica_counts)})
    predictions = [
        predict(step, machines, count, global_batch_size) for count in counts
    ]
    last = last_that_helps(predictions, checked_number(worth, "worth"))
    return {
        "scaling": "weak" if global_batch_size is None else "strong",
        "step": _facts(step),
        "predictions": [dataclasses.asdict(row) for row in predictions],
        "last_that_helps": last,
        "verdict": tables.verdict(predictions, last, worth),
    }


def plan_mesh(step: Step, prediction: MeshPrediction) -> dict[str, Any]:
    """Returns what `plan` does, but for the verdict, of one mesh's prediction."""
    return {
        "scaling": "strong",
        "step": _facts(step),
        "predictions": [dataclasses.asdict(prediction)],
    }


def run(
    report: dict[str, Any],
    title: str = "",
    notes: Sequence[str] = (),
    output_dir: str | os.PathLike[str] | None = None,
    module: str | None = None,
    device_memory: str | None = None,
    replicas_per_machine: int = 8,
) -> None:
    """Completes a report, prints its table and writes the files.

    Args:
        report: Dictionary of `plan` or `plan_mesh`; `title` and `notes` are
            added, and with a module `memory`, the result of `fitting.fits`.
        title: String, description of the machines.
        output_dir: String or path-like, folder for `plan.json` and, without a
            mesh, `plan.png`. Default: no files.
        module: String, `"module:function"` of the model whose memory is
            predicted. Default: no memory is.
        device_memory: String, memory of a device: a size or a GPU's name.
        replicas_per_machine: Integer, see `fitting.fits`.
    """
    report.update(title=title, notes=list(notes))
    rows = report["predictions"]
    if module is not None and device_memory is not None:
        is_weak = report["scaling"] == "weak"
        found = fitting.fits(
            module, device_memory, rows, is_weak, replicas_per_machine
        )
        report["memory"] = found
        recommended = report["last_that_helps"] or rows[-1]["replicas"]
        text = fitting.verdict(found, recommended, device_memory)
        report["verdict"] += f" {text}"
    tables.print_plan(report)
    if output_dir is not None:
        folder = pathlib.Path(output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report, indent=1)
        write_text(folder / "plan.json", f"{text}\n")
        if "mesh" not in rows[0]:
            tables.draw(report, folder / "plan.png")


def _facts(step: Step) -> dict[str, Any]:
    """Returns the attributes of a step; JSON has no infinity."""
    facts = dataclasses.asdict(step)
    return {k: None if v == math.inf else v for k, v in facts.items()}
