"""A case of `shared_program`: throughput; worker 1 needs longer for its part."""

import json
import time

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu

# Far more than a busy machine takes from the other worker.
SECONDS = 0.3
LATE = 0.2


class Late(keras.callbacks.Callback):
    """Sleeps after each step, on the second worker."""

    def __init__(self, is_slow):
        super().__init__()
        self.seconds = LATE * is_slow

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(self.seconds)


def run(strategy, _, folder):
    """Trains three epochs and writes the figures."""
    strategy = strategy()
    path = folder / "throughput.jsonl"
    is_slow = strategy.cluster_resolver.task_id == 1

    pauses = [0.0]

    def pause(inputs):
        time.sleep(pauses[-1])
        return inputs

    class Pause(keras.layers.Layer):
        def call(self, inputs):
            paused = tf.py_function(pause, [inputs], inputs.dtype)
            return tf.ensure_shape(paused, inputs.shape)

    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((2,)), keras.layers.Dense(2), Pause()]
        )
        model.compile("sgd", "mse")
    x = np.ones((44, 2))
    # Not counted with the steps that are measured.
    model.fit(x, x, batch_size=8, verbose=0)
    pauses.append(SECONDS * is_slow)
    start = time.perf_counter()
    model.fit(
        x,
        x,
        batch_size=8,
        epochs=3,
        verbose=0,
        callbacks=[
            kerasmgpu.callbacks.ThroughputLogger(path),
            kerasmgpu.callbacks.RunRecord(f"{path}.run"),
            Late(is_slow),
        ],
    )
    if not is_slow:
        wall = time.perf_counter() - start
        (folder / "wall.json").write_text(json.dumps(wall))
