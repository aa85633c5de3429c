"""A worker that trains with Keras's own callbacks and with ours.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.files_program FOLDER [STEP]

With `STEP` it is killed there, and goes on when it is started again. Also a case
of `shared_program`.
"""

import importlib.util
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import kerasmgpu
from kerasmgpu.job import workers


def run(strategy, stop_at, folder):
    """Writes what each callback writes, and `weights.npz`."""
    strategy = strategy()
    import keras

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations.numpy() == int(stop_at or -1):
                os._exit(9)

    class Look(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            losses.append(logs["loss"])

    losses = []
    keras.utils.set_random_seed(2)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(8, activation="relu"),
                keras.layers.Dropout(0.5),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(1),
            ]
        )
        model.compile("adam", "mse")
    callbacks = [
        keras.callbacks.ModelCheckpoint(folder / "model-{epoch}.keras"),
        keras.callbacks.CSVLogger(folder / "log.csv", append=True),
        kerasmgpu.callbacks.Checkpoint(folder / "checkpoints", every_steps=2),
    ]
    if importlib.util.find_spec("tensorboard"):
        callbacks.append(keras.callbacks.TensorBoard(folder / "board"))
    x = np.random.default_rng(0).normal(size=(50, 4))
    history = model.fit(
        x,
        x[:, :1],
        batch_size=8,
        epochs=3,
        verbose=0,
        callbacks=[*callbacks, Stop()],
    ).history
    # Sums over the workers are for all or none, also where only one looks.
    is_first = workers.is_first(strategy)
    loss = model.evaluate(
        x,
        x[:, :1],
        batch_size=8,
        verbose=0,
        callbacks=[Look()] if is_first else [],
    )
    model.save(folder / "final.keras")
    if is_first:
        losses.append(loss)
        (folder / "losses.json").write_text(json.dumps(losses))
        np.savez(folder / "weights.npz", *model.get_weights())
        (folder / "history.json").write_text(json.dumps(history))


def main(folder, stop_at=""):
    """Trains in a job of its own."""
    run(kerasmgpu.strategy, stop_at, pathlib.Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
