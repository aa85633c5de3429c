"""A worker that trains until something ends it."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import kerasmgpu


def main(mark):
    """Makes the file `mark` once steps are made."""
    strategy = kerasmgpu.strategy()
    import keras

    class Mark(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 2:
                pathlib.Path(mark).touch()

    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(
        np.ones((8, 3)),
        np.ones((8, 1)),
        epochs=1_000_000,
        verbose=0,
        callbacks=[Mark()],
    )


if __name__ == "__main__":
    main(sys.argv[1])
