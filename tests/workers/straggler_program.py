"""A worker that logs its throughput; worker 1 needs longer for its part.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.straggler_program FILE
"""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import kerasmgpu

# Far more than a busy machine takes from the other worker.
SECONDS = 0.3


def main(path):
    """Trains three epochs and writes the figures to `path`."""
    strategy = kerasmgpu.strategy()
    import keras

    is_slow = strategy.cluster_resolver.task_id == 1

    def pause(inputs):
        time.sleep(SECONDS * is_slow)
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
    model.fit(
        x,
        x,
        batch_size=8,
        epochs=3,
        verbose=0,
        callbacks=[
            kerasmgpu.callbacks.ThroughputLogger(path),
            kerasmgpu.callbacks.RunRecord(f"{path}.run"),
        ],
    )


if __name__ == "__main__":
    main(sys.argv[1])
