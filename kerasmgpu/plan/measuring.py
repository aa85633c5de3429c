"""One replica's step, measured: `python -m kerasmgpu.plan.measuring FOLDER`.

`FOLDER/job.json` names the user's function; `FOLDER/result.json` is what came
of it. Plain Keras on the first GPU, or on the CPU: what one replica does.
"""

import time

from kerasmgpu.commands import child_processes


def main(job):
    """Measures as the job says; returns the result."""
    return measure(job["build"], job["steps"])


def measure(build, steps):
    """Trains the model that `build` makes; returns seconds and rates.

    Args:
        build: String, `"module:function"`.
        steps: Integer, steps to measure, after as many that warm up.

    Returns:
        Dictionary of `rows`, `step_seconds` (with the input at hand),
        `host_seconds` (CPU time of the process in a step),
        `input_rows_per_second` (of the data set alone), `parameters`,
        `device` and `on_cpu`.
    """
    # Imported here: the parent, which never measures, imports no TensorFlow.
    import keras
    import numpy as np
    import tensorflow as tf

    from kerasmgpu.engine import devices
    from kerasmgpu.verify.batches import num_rows

    (device,) = devices.choose(1)
    model, dataset = _model_and_batches(build)
    iterator = iter(dataset.repeat())
    largest, most_rows = None, 0
    for _ in range(steps):  # Uses up what the pipeline has in stock.
        batch = next(iterator)
        if num_rows(batch) > most_rows:
            largest, most_rows = batch, num_rows(batch)
    begin = time.perf_counter()
    rows = sum(num_rows(next(iterator)) for _ in range(steps))
    input_seconds = time.perf_counter() - begin
    # The same batch again and again: the input can't be late.
    clocks = []
    timer = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: clocks.append(_clocks()),
        on_epoch_end=lambda *_: clocks.append(_clocks()),
    )
    at_hand = tf.data.Dataset.from_tensors(largest).cache().repeat()
    model.fit(
        at_hand, steps_per_epoch=steps, epochs=2, callbacks=[timer], verbose=0
    )
    *_, begin, end = clocks
    wall_seconds, cpu_seconds = np.subtract(end, begin).tolist()
    weights = model.trainable_weights
    return {
        "rows": most_rows,
        "step_seconds": wall_seconds / steps,
        "host_seconds": cpu_seconds / steps,
        "input_rows_per_second": rows / input_seconds,
        "parameters": int(sum(np.prod(w.shape) for w in weights)),
        "device": device,
        "on_cpu": device.startswith("CPU"),
    }


def _clocks():
    """Seconds by the wall's clock, and of CPU time of all threads."""
    return time.perf_counter(), time.process_time()


def _model_and_batches(build):
    """The user's compiled model, and a `tf.data.Dataset` of batches."""
    import tensorflow as tf

    from kerasmgpu.errors import InputError
    from kerasmgpu.verify import references, user_models
    from kerasmgpu.verify.batches import as_nest

    module, name = references.load(build)
    model, data = user_models.build(references.function_of(module, name))
    if data is None:
        data = user_models.data_in(module)
    if not isinstance(data, tf.data.Dataset):
        if not isinstance(data, (tuple, list)):
            raise InputError(
                "the data must be a tf.data.Dataset of batches, or arrays "
                f"(x, y). Received: {type(data).__name__}"
            )
        # As fit does where it is not told.
        data = tf.data.Dataset.from_tensor_slices(as_nest(data)).batch(32)
    return model, data


if __name__ == "__main__":
    child_processes.do_job(main)
