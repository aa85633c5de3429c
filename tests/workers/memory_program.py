"""Prints by how much training grows a process: `plain grown by 261 MiB`.

    python -m tests.workers.memory_program plain       # Keras, one device
    python -m tests.workers.memory_program devices     # two logical devices
    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.memory_program workers   # or sharded

Several kinds are trained one after the other: `plain devices`.

13 dense layers of 1,100 units, 60 MiB of weights, Adam, batches of 8 rows: the
weights, gradients and slots are nearly all that a process holds.
"""

import contextlib
import gc
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

_UNITS = 1100


def mebibytes(name):
    """Returns a figure of Linux's `/proc/self/status`, in MiB."""
    with open("/proc/self/status", encoding="utf-8") as status:
        for line in status:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    raise KeyError(name)


def growth(scope):
    """Trains in a scope; returns the growth of the resident memory, in MiB."""
    import keras

    gc.collect()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # The peak anew.
    before = mebibytes("VmRSS")
    with scope:
        model = keras.Sequential([keras.Input((_UNITS,))])
        for _ in range(13):
            model.add(keras.layers.Dense(_UNITS))
        model.compile(keras.optimizers.Adam(), "mse")
    x = np.random.default_rng(0).normal(size=(16, _UNITS)).astype("float32")
    model.fit(tf.data.Dataset.from_tensor_slices((x, x)).batch(8), verbose=0)
    keras.utils.clear_session()
    return mebibytes("VmHWM") - before


def main(*kinds):
    """Trains, and prints what each kind needs."""
    import kerasmgpu

    scopes = {"plain": contextlib.nullcontext()}
    for kind in dict.fromkeys(kinds):
        if kind == "plain":
            continue
        scopes[kind] = kerasmgpu.strategy(
            virtual_devices=2 if kind == "devices" else None,
            shard="weights" if kind == "sharded" else None,
        ).scope()
    for kind in kinds:
        print(f"{kind} grown by {growth(scopes[kind]):.0f} MiB", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
