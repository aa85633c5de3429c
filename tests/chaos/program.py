"""The worker of the campaign: trains with checkpoints, keeps the weights.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.chaos.program OUTPUT_DIR CHECKPOINT_DIR [EPOCHS [sharded]]
"""

import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import kerasmgpu
from kerasmgpu.job import workers

EPOCHS = 16
STEPS_PER_EPOCH = 15
NUM_STEPS = EPOCHS * STEPS_PER_EPOCH


def main(output_dir, checkpoint_dir, epochs=EPOCHS, sharded=""):
    """Trains epochs of 15 steps; writes and returns the weights."""
    output_dir = pathlib.Path(output_dir)
    strategy = kerasmgpu.strategy(shard="weights" if sharded else None)
    import keras

    index = 0 if workers.is_first(strategy) else 1
    (output_dir / f"pid-{index}").write_text(str(os.getpid()))
    keras.utils.set_random_seed(3)

    class Pace(keras.callbacks.Callback):
        """Makes a step long enough for a fault to meet one in its middle."""

        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.02)
            if index == 0:
                steps = int(self.model.optimizer.iterations.numpy())
                (output_dir / "steps").write_text(str(steps))

    random = np.random.default_rng(5)
    x = random.normal(size=(470, 300)).astype("float32")
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((300,)),
                # Smooth: rounding can't switch a unit off, as it can a ReLU.
                keras.layers.Dense(1000, activation="tanh"),
                keras.layers.Dropout(0.3),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(1),
            ]
        )
        model.compile("adam", "mse")
    model.fit(
        x,
        x[:, :1],
        batch_size=32,
        epochs=int(epochs),
        verbose=0,
        callbacks=[
            Pace(),
            kerasmgpu.callbacks.Checkpoint(
                checkpoint_dir, every_steps=7, sharded=bool(sharded)
            ),
        ],
    )
    weights = model.get_weights()
    if workers.is_first(strategy):
        temporary = output_dir / "weights.tmp.npz"
        np.savez(temporary, *weights)
        os.replace(temporary, output_dir / "weights.npz")
    return weights


if __name__ == "__main__":
    main(*sys.argv[1:])
