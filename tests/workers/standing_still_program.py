"""A worker that trains for long and says where it is: `pid-N`, `epoch-N`."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import kerasmgpu


def main(folder):
    """Trains until it is ended."""
    strategy = kerasmgpu.strategy()
    import keras

    number = strategy.cluster_resolver.task_id
    folder = pathlib.Path(folder)

    class Tell(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            (folder / f"epoch-{number}").write_text(str(epoch))

    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    (folder / f"pid-{number}").write_text(str(os.getpid()))
    model.fit(
        np.ones((8, 3)),
        np.ones((8, 1)),
        epochs=1_000_000,
        verbose=0,
        callbacks=[Tell()],
    )


if __name__ == "__main__":
    main(sys.argv[1])
