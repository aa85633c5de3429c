"""A worker that saves or resumes with weights that are sharded.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.resume_program save FOLDER
    … then … resume FOLDER

`resume` prints by how much a process has grown when the first step begins:
`grown by 230 MiB`. As a case of `shared_program`: trains a run without a break,
and one that is broken off in the middle of an epoch and resumed.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import kerasmgpu
from kerasmgpu.job import workers
from tests.workers.memory_program import mebibytes

UNITS = 1500


def run(strategy, kind, folder):
    """States and histories of a run without a break, and of one with.

    With the kind `"sharded"`, of checkpoints that all workers write; with
    `"unshared"`, what `without_a_folder` returns; with `"mesh"`, `on_meshes`.
    """
    from tests.callbacks.checkpoints import runs

    if kind == "mesh":
        strategy()
        return on_meshes(folder)
    if kind == "unshared":
        return without_a_folder(strategy, folder)
    shard = strategy(shard="weights", min_shard_bytes=0)
    is_sharded = kind == "sharded"

    def train(name, break_at=None):
        # With averages, fit would change weights after the last save.
        model = runs.build(shard, "adam" if is_sharded else None)
        history = runs.train(
            model,
            runs.shuffled(),
            folder / name,
            break_at=break_at,
            every_steps=2,
            sharded=is_sharded,
        )
        return runs.state(model), history and history.history

    piece, workers._PIECE = workers._PIECE, 64
    try:  # Arrays are broadcast in several pieces, of 64 bytes.
        whole = train("whole")
        train("cut", break_at=(1, 3))
        return whole, train("cut")
    finally:
        workers._PIECE = piece


def on_meshes(folder):
    """States of a run on a mesh of 2 x 2, and restored on one of 4 x 1."""
    import keras

    from tests.callbacks.checkpoints import runs

    try:
        keras.distribution.set_distribution(runs.on_mesh(2, 2))
        model = runs.build(None, "adam", jit_compile=False)
        runs.train(model, runs.arrays(), folder, epochs=1, sharded=True)
        expected = runs.state(model)
        keras.distribution.set_distribution(runs.on_mesh(4, 1))
        model = runs.build(None, "adam", jit_compile=False)
        return expected, runs.restored(model, folder)
    finally:
        keras.distribution.set_distribution(None)


def without_a_folder(strategy, folder):
    """What runs say whose workers have no folder together, or no space.

    Returns:
        Errors: with a folder each, and if the second worker can't write its
        part. Then the names that each worker finds in its folder, if it is not
        said how checkpoints are written.
    """
    from kerasmgpu.callbacks.checkpoints import saving
    from kerasmgpu.callbacks.checkpoints.folder import Folder
    from tests.callbacks.checkpoints import runs

    strategy = strategy(shard="weights", min_shard_bytes=0)
    index = workers.index(strategy)

    def train(path, sharded):
        model = runs.build(strategy, "adam")
        try:
            runs.train(model, runs.arrays(), path, epochs=1, sharded=sharded)
        except kerasmgpu.InputError as error:
            return str(error)
        return sorted(entry.name for entry in path.iterdir())

    def refuse(*arguments):
        raise OSError(28, "No space left on device")

    own, write_part = folder / f"worker-{index}", Folder.write_part
    own.mkdir()
    found = [train(own, sharded=True)]
    if index == 1:
        Folder.write_part = refuse
    smallest, saving.SHARDED_BYTES = saving.SHARDED_BYTES, 1
    try:
        found.append(train(folder / "shared", sharded=None))
        found.append(train(own, sharded=None))
        return found
    finally:
        Folder.write_part, saving.SHARDED_BYTES = write_part, smallest


def main(kind, folder):
    """Saves or resumes."""
    strategy = kerasmgpu.strategy(shard="weights", min_shard_bytes=0)
    import keras

    before = mebibytes("VmRSS")
    folder = pathlib.Path(folder)

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
