"""Prints by how much training grows a process: `grown by 437 MiB`.

    python -m tests.workers.memory_program plain       # Keras, one device
    python -m tests.workers.memory_program devices     # two logical devices
    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.memory_program workers   # or sharded

13 dense layers of 1,500 units, 112 MiB of weights, Adam, batches of 8 rows: the
weights, gradients and slots are nearly all that a process holds.
"""

import contextlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

_UNITS = 1500


def mebibytes(name):
    """Returns a figure of Linux's `/proc/self/status`, in MiB."""
    with open("/proc/self/status", encoding="utf-8") as status:
        for line in status:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    raise KeyError(name)


def main(kind):
    """Trains, and prints the growth of the resident memory."""
    scope = contextlib.nullcontext()
    if kind != "plain":
        import kerasmgpu

        scope = kerasmgpu.strategy(
            virtual_devices=2 if kind == "devices" else None,
            shard="weights" if kind == "sharded" else None,
        ).scope()
    import keras

    before = mebibytes("VmRSS")
    with scope:
        model = keras.Sequential([keras.Input((_UNITS,))])
        for _ in range(13):
            model.add(keras.layers.Dense(_UNITS))
        model.compile(keras.optimizers.Adam(), "mse")
    x = np.random.default_rng(0).normal(size=(16, _UNITS)).astype("float32")
    model.fit(tf.data.Dataset.from_tensor_slices((x, x)).batch(8), verbose=0)
    print(f"grown by {mebibytes('VmHWM') - before:.0f} MiB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
