"""One worker of a job that shards variables, in cases of the parity table.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.sharded_program OUTPUT_DIR VIRTUAL_DEVICES [RUN …]

A run is `weights: CASE` or `optimizer: CASE`, or `weights in 2: CASE` for two
micro-batches. Each worker writes
`worker-<index>.pickle`: runs to `harness.Outcome`s, and `"message"` to the
error of reading a variable on the first worker alone.
"""

import os
import pathlib
import pickle
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import kerasmgpu
from kerasmgpu import cluster

READ_TIMEOUT_SECONDS = 3


def main(output_dir, virtual_devices, *runs):
    """Runs the cases, saves a model, and reads a variable alone."""
    setting = "weights"

    def shard(variable):
        return setting.startswith("weights") or variable.kind == "slot"

    strategy = kerasmgpu.strategy(
        virtual_devices=int(virtual_devices), shard=shard, min_shard_bytes=0
    )
    import keras
    import numpy as np

    from tests.parity import harness
    from tests.parity.cases import CASES

    folder = pathlib.Path(output_dir)
    index = cluster.from_environment().index
    outcomes = {}
    for run in runs:
        setting, _, name = run.partition(": ")
        strategy.micro_batches = 2 if setting.endswith("in 2") else 1
        outcomes[run] = harness.run(CASES[name], strategy)
    setting, strategy.micro_batches = "weights", 1
    saves = outcomes["saves"] = []

    class Backwards(keras.layers.Dense):
        """Reads its variables in an order of its own when it is saved."""

        def save_own_variables(self, store):
            saves.append([v.numpy().shape for v in reversed(self.weights)])
            super().save_own_variables(store)

    with strategy.scope():
        model = keras.Sequential([keras.Input((5,)), Backwards(7)])
    outcomes["weights"] = model.get_weights()
    outcomes["part"] = model.weights[0].value.parts[0].numpy()
    model.save(folder / "model.keras")
    model.save_weights(folder / "all.weights.json", max_shard_size=1)
    keras.saving.save_model(model, folder / f"of_{index}.keras")
    keras.saving.save_model(model, folder / f"of_{index}.h5")
    keras.saving.save_weights(model, folder / f"of_{index}.weights.h5")
    try:
        model.save_weights(folder / "nowhere" / "all.weights.h5")
    except FileNotFoundError:
        outcomes["failed"] = True
    model.set_weights([np.ones([5, 7]), np.zeros(7)])
    model.load_weights(folder / "model.keras")
    outcomes["loaded weights"] = model.get_weights()
    strategy.extended.read_timeout_seconds = READ_TIMEOUT_SECONDS
    if index == 0:
        start = time.monotonic()
        try:
            model.weights[0].numpy()
        except kerasmgpu.InputError as error:
            outcomes["message"] = str(error)
        outcomes["seconds"] = time.monotonic() - start
        (folder / "read alone").touch()
    while not (folder / "read alone").exists():
        time.sleep(0.05)
    strategy.extended.read_timeout_seconds = 60
    outcomes["read again"] = model.weights[0].numpy()  # By both: it works.
    path = folder / f"worker-{index}.pickle"
    path.write_bytes(pickle.dumps(outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
