"""A worker that resumes from a checkpoint, with weights that are sharded.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.resume_program exactly FOLDER
    … save FOLDER, then … resume FOLDER

`exactly` trains a run without a break, and one that is broken off in the middle
of an epoch and resumed; each worker writes both states to
`worker-<index>.pickle`. `resume` prints by how much a process has grown when
the first step begins: `grown by 230 MiB`.
"""

import os
import pathlib
import pickle
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import kerasmgpu
from kerasmgpu.job import workers
from tests.workers.memory_program import mebibytes

UNITS = 1500


def main(kind, folder):
    """Runs what `kind` says."""
    strategy = kerasmgpu.strategy(shard="weights", min_shard_bytes=0)
    import keras

    from tests.callbacks.checkpoints import runs

    before = mebibytes("VmRSS")
    folder = pathlib.Path(folder)
    if kind == "exactly":
        workers._PIECE = 64  # Bytes: arrays are broadcast in several pieces.

        def train(name, break_at=None):
            model = runs.build(strategy)
            history = runs.train(
                model,
                runs.shuffled(),
                folder / name,
                break_at=break_at,
                every_steps=2,
            )
            return runs.state(model), history and history.history

        whole = train("whole")
        train("cut", break_at=(1, 3))
        outcome = pickle.dumps([whole, train("cut")])
        worker = strategy.cluster_resolver.task_id
        (folder / f"worker-{worker}.pickle").write_bytes(outcome)
        return

    class Measured(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if kind == "resume":
                grown = mebibytes("VmHWM") - before
                print(f"grown by {grown:.0f} MiB", flush=True)
                # Without a hang: all workers are here.
                self.model.stop_training = True

    with strategy.scope():
        model = keras.Sequential([keras.Input((UNITS,))])
        for _ in range(13):
            model.add(keras.layers.Dense(UNITS))
        model.compile("adam", "mse")
    x = np.ones((8, UNITS), "float32")
    checkpoint = kerasmgpu.callbacks.Checkpoint(folder)
    model.fit(
        x,
        x,
        batch_size=8,
        epochs=1 if kind == "save" else 2,
        verbose=0,
        callbacks=[checkpoint, Measured()],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
