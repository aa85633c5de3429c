"""Prints by how much training grows a process: `plain: grown by 437 MiB`.

    python -m tests.workers.memory_program plain devices
    python -m kerasmgpu.launch --num_workers=4 -- \
        -m tests.workers.memory_program sharded workers

`plain` is Keras on one device, `devices` two logical devices. What needs less
comes first: a process has one peak.

13 dense layers of 1,500 units, 112 MiB of weights, Adam, batches of 8 rows: the
weights, gradients and slots are nearly all that a process holds.
"""

import contextlib
import gc
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import kerasmgpu

_UNITS = 1500


def mebibytes(name):
    """Returns a figure of Linux's `/proc/self/status`, in MiB."""
    with open("/proc/self/status", encoding="utf-8") as status:
        for line in status:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    raise KeyError(name)


def main(*kinds):
    """Trains each kind, and prints the growth of the resident memory."""
    strategy = kerasmgpu.strategy(
        virtual_devices=2 if "devices" in kinds else None,
        shard=lambda variable: kind == "sharded",
    )
    for kind in kinds:
        before = mebibytes("VmRSS")
        plain = kind == "plain"
        train(contextlib.nullcontext() if plain else strategy.scope())
        grown = mebibytes("VmHWM") - before
        print(f"{kind}: grown by {grown:.0f} MiB", flush=True)
        gc.collect()


def train(scope):
    import keras

    with scope:
        model = keras.Sequential([keras.Input((_UNITS,))])
        for _ in range(13):
            model.add(keras.layers.Dense(_UNITS))
        model.compile(keras.optimizers.Adam(), "mse")
    x = np.random.default_rng(0).normal(size=(16, _UNITS)).astype("float32")
    model.fit(tf.data.Dataset.from_tensor_slices((x, x)).batch(8), verbose=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
