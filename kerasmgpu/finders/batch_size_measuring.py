"""Measures batch sizes, as `python -m kerasmgpu.finders.batch_size_measuring`.

It is a child process, which may run out of memory, or be killed for it.
"""

import contextlib
import json
import pathlib
import re
import traceback
from typing import Any

from kerasmgpu.callbacks import json_lines
from kerasmgpu.commands import child_processes, user_errors
from kerasmgpu.errors import InputError
from kerasmgpu.finders.batch_size_search import Limits, next_size

FILE = "measured.jsonl"
"""Has a line of facts about the model, then one for each measurement."""

_MOST_STEPS = 200
_EPOCHS = 3


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Measures until the search ends, or a size fails.

    Returns:
        Dictionary, empty: measurements are in the file.
    """
    # If the machine runs out of memory, the kernel kills this process first.
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
    _measure_all(job)
    return {}


def read(path: pathlib.Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the facts about the model, and the measurements."""
    if not path.exists():
        return {}, []
    records, _ = json_lines.parse(path.read_text("utf-8"))
    facts, *measured = records or [{}]
    return facts, measured


def append(path: pathlib.Path, record: dict[str, Any]) -> None:
    """Appends a line to the file that `read` reads."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def _measure_all(job: dict[str, Any]) -> None:
    # Imported here, so that no parent imports TensorFlow.
    import kerasmgpu
    from kerasmgpu.commands import references, user_models
    from kerasmgpu.engine.devices import leave_room

    leave_room()
    strategy: Any = kerasmgpu.strategy(**job["strategy"])
    path = pathlib.Path(job["folder"], FILE)
    flag = "--num_replicas or --virtual_devices"
    with user_models.scope(strategy, job["build"], flag):
        model, data = user_models.model_and_data(
            references.load(job["build"]), job["build"], job["data"]
        )
    strategy = user_models.strategy_of(model, strategy)
    layouts = strategy.layouts
    rows, most_rows = _rows_of(data)
    facts, measured = read(path)
    if not facts:
        facts = {
            "model": model.name,
            "parameters": model.count_params(),
            "replicas": strategy.num_replicas_in_sync,
            "mesh": layouts and layouts.mesh,
            "shares": (
                layouts.num_row_shares
                if layouts
                else strategy.num_replicas_in_sync
            ),
            "devices": list(strategy.extended.worker_devices),
            "high": job["limits"]["high"] or most_rows,
        }
        append(path, facts)
    limits = Limits(**{**job["limits"], "high": facts["high"]})
    is_fresh = True
    while (size := next_size(measured, limits)) is not None:
        speed, error = None, None
        try:
            speed = _examples_per_second(model, rows, size, job["seconds"])
        except Exception as raised:
            traceback.print_exc()
            error = _out_of_memory(raised)
            if error is None and not measured:
                raise  # The model doesn't train at all.
            error = error or user_errors.in_one_line(raised)
        if error is not None and not is_fresh:
            return  # Smaller sizes have left their traces: in a new process.
        measured.append(
            {
                "global_batch_size": size,
                "examples_per_second": speed,
                "error": error,
            }
        )
        append(path, measured[-1])
        is_fresh = False
        if error is not None:
            return


def _out_of_memory(error: Exception) -> str | None:
    """Returns a line, or `None` if the error is no lack of memory."""
    import tensorflow as tf

    if not isinstance(error, (MemoryError, tf.errors.ResourceExhaustedError)):
        return None
    tensor = re.search(r"allocating tensor with shape\[[\d,]*\]", str(error))
    return f"out of memory {tensor[0] if tensor else ''}".rstrip()


def _rows_of(data: Any) -> tuple[Any, int | None]:
    """Returns a `tf.data.Dataset` of rows, and the number of rows of the data.

    These are all rows of arrays, or those of the first batch of batches. The
    number is `None` if the data don't tell it.
    """
    import tensorflow as tf

    from kerasmgpu.commands import batches

    if isinstance(data, (tuple, dict)) or hasattr(data, "shape"):
        leaves = tf.nest.flatten(batches.as_nest(data))
        rows = len(next(leaf for leaf in leaves if leaf is not None))
        # A batch of all rows but the last, and one of the last.
        dataset = batches.first_batches(data, 2, max(1, rows - 1))
        return dataset.unbatch(), rows
    first = batches.first_batches(data, 1)
    most = getattr(data, "num_batches", None)
    if isinstance(data, tf.data.Dataset):
        most = int(data.cardinality())
    for batch in first:
        rows = batches.num_rows(batch)
        return first.unbatch(), rows * most if most and most > 0 else None
    raise InputError("the data are empty; at least one batch is needed")


def _examples_per_second(
    model: Any, rows: Any, size: int, seconds: float
) -> float:
    """Returns the median of three epochs of steps on one repeated batch."""
    from kerasmgpu.callbacks.throughput import median_speed

    # In memory: the step never waits for input.
    batch = rows.repeat().batch(size).take(1).cache().repeat()
    per_execution = model.steps_per_execution

    def speed(executions: int, epochs: int) -> Any:
        steps = executions * per_execution
        return median_speed(model, batch, steps_per_epoch=steps, epochs=epochs)

    # The first execution traces, and the second may be compiled; one behind
    # them tells how many take long enough.
    executions = seconds / _EPOCHS * speed(1, _EPOCHS) / (size * per_execution)
    # ThroughputLogger leaves out the first execution, so two at least.
    return speed(2 + min(int(executions), _MOST_STEPS), _EPOCHS)


if __name__ == "__main__":
    child_processes.do_job(user_errors.naming_the_function(main))
