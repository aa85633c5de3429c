"""Measures one replica's step, with plain Keras on the first GPU or the CPU.

It is a child process, `python -m kerasmgpu.plan.measuring FOLDER`.
"""

import time
from typing import Any

from kerasmgpu.commands import child_processes, user_errors


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Trains the model that `build` returns, and measures its step.

    Args:
        job: Dictionary: `"build"`, `"module:function"`; `"steps"` to measure,
            after as many to warm up; and `"devices"`, how many a program with
            `keras.distribution` finds. The step does not follow it.

    Returns:
        Dictionary of `rows`, `step_seconds` (without waiting for input),
        `host_seconds` (CPU time of the process in a step),
        `input_rows_per_second` (of the data set alone), `parameters`,
        `device`, `on_cpu` and `sets_distribution`, whether the program sets
        a `keras.distribution`.
    """
    # Imported here, so that no parent imports TensorFlow.
    import keras
    import numpy as np
    import tensorflow as tf

    from kerasmgpu.commands.batches import num_rows
    from kerasmgpu.engine import devices
    from kerasmgpu.strategies.noted_distributions import noted

    devices.leave_room()
    (device,), steps = devices.choose(1), job["steps"]
    kind, _, _ = device.partition(":")
    with noted(job["devices"], kind) as note:
        model, dataset = _model_and_batches(job["build"], note.listed)
    iterator = iter(dataset.repeat())
    largest, most_rows = None, 0
    for _ in range(steps):  # Empties the pipeline's buffers.
        batch = next(iterator)
        if num_rows(batch) > most_rows:
            largest, most_rows = batch, num_rows(batch)
    begin = time.perf_counter()
    rows = sum(num_rows(next(iterator)) for _ in range(steps))
    input_seconds = time.perf_counter() - begin
    # One batch, repeated: the step never waits for input.
    clocks: list[tuple[float, float]] = []
    timer = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: clocks.append(_clocks()),
        on_epoch_end=lambda *_: clocks.append(_clocks()),
    )
    repeated = tf.data.Dataset.from_tensors(largest).cache().repeat()
    model.fit(
        repeated, steps_per_epoch=steps, epochs=2, callbacks=[timer], verbose=0
    )
    *_, at_begin, at_end = clocks
    wall_seconds, cpu_seconds = np.subtract(at_end, at_begin).tolist()
    weights = model.trainable_weights
    return {
        "rows": most_rows,
        "step_seconds": wall_seconds / steps,
        "host_seconds": cpu_seconds / steps,
        "input_rows_per_second": rows / input_seconds,
        "parameters": int(sum(np.prod(w.shape) for w in weights)),
        "device": device,
        "on_cpu": device.startswith("CPU"),
        "sets_distribution": note.distribution is not None,
    }


def _clocks() -> tuple[float, float]:
    """Returns wall time and the CPU time of all threads, in seconds."""
    return time.perf_counter(), time.process_time()


def _model_and_batches(build: str, listed: list[str]) -> tuple[Any, Any]:
    """Returns the user's compiled model and a `tf.data.Dataset` of batches."""
    import tensorflow as tf

    from kerasmgpu.commands import user_models
    from kerasmgpu.commands.batches import as_nest
    from kerasmgpu.errors import InputError

    model, data = user_models.loaded(build, None, listed, "--replica_counts")
    if not isinstance(data, tf.data.Dataset):
        if not isinstance(data, (tuple, list)):
            raise InputError(
                "the data must be a tf.data.Dataset of batches, or arrays "
                f"(x, y). Received: {type(data).__name__}"
            )
        # The default batch size of `fit`.
        data = tf.data.Dataset.from_tensor_slices(as_nest(data)).batch(32)
    return model, data


if __name__ == "__main__":
    child_processes.do_job(user_errors.naming_the_function(main))
