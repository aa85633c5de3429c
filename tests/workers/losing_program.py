"""A worker that trains for long, and one of them comes to a given end."""

import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import kerasmgpu


def main(end):
    """Trains; worker 1 ends as `end` says after some epochs."""
    strategy = kerasmgpu.MultiWorkerMirroredStrategy(timeout_seconds=3)
    import keras

    class End(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch < 2 or strategy.cluster_resolver.task_id == 0:
                return
            if end == "error":
                raise ValueError("worker 1 can't read its data")
            os.kill(os.getpid(), getattr(signal, end))

    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(
        np.ones((8, 3)),
        np.ones((8, 1)),
        epochs=1_000_000,
        verbose=0,
        callbacks=[End()],
    )


if __name__ == "__main__":
    main(sys.argv[1])
