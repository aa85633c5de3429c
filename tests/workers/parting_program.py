"""A worker of two that does what the other one doesn't do.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.parting_program WAY

Worker 1 is the one that differs, in its third epoch.
"""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import kerasmgpu

STEPS, ROWS = 4, 4


def main(way):
    """Trains until workers have parted."""
    strategy = kerasmgpu.strategy()
    import keras

    differs = strategy.cluster_resolver.task_id == 1
    steps = STEPS + (way == "shorter" and not differs)
    steps += 2 * (way == "execution" and not differs)

    class Users(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch < 2 or not differs:
                return
            if way == "stop":
                self.model.stop_training = True
            if way == "predict":
                self.model.predict(x[:4], verbose=0)
            if way == "raise":
                raise OSError("the disk of worker 1 is full")
            if way == "sleep":
                time.sleep(600)

    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        execution = 4 if way == "execution" else 1
        model.compile("sgd", "mse", steps_per_execution=execution)
    x = np.ones((steps * ROWS, 3), "float32")
    y = x[:, :1]
    settings = {}
    if way == "validation_freq":
        settings = dict(validation_data=(x, y), validation_freq=3 - differs)
    if way == "steps_per_epoch":
        settings = dict(steps_per_epoch=STEPS - differs)
    settings |= dict(epochs=6, verbose=0, callbacks=[Users()])
    model.fit(x, y, batch_size=ROWS, **settings)
    print("fit ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
