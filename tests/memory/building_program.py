"""Prints what a process predicts for building and loading a model, and measures.

    python -m tests.memory.building_program FILE none weights

For each `shard` a line `built PREDICTED MEASURED` and a line `loaded …`, in MiB
of resident memory. The file of weights is written.
"""

import gc
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras

import kerasmgpu
from kerasmgpu.memory.building import building_bytes
from kerasmgpu.memory.state_bytes import Setting
from kerasmgpu.memory.traced_step import _records
from tests.workers.memory_program import mebibytes

_DEVICES = 2


def network(layers=9, units=1300):
    model = keras.Sequential([keras.Input((units,))])
    for _ in range(layers):
        model.add(keras.layers.Dense(units))
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


class Growth:
    """Growth of the process's resident memory, in MiB, since it was made."""

    def __init__(self):
        gc.collect()
        self._before = mebibytes("VmRSS")

    def peak(self, call, *arguments):
        """What a call returns, and the growth at its peak."""
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # The peak anew.
        return call(*arguments), mebibytes("VmHWM") - self._before


def main(file, *shards):
    """Prints the lines of each `shard`."""
    for shard in shards:
        strategy = kerasmgpu.strategy(
            virtual_devices=_DEVICES, shard=None if shard == "none" else shard
        )
        with strategy.scope():
            small = network(2, 80)
            small.save_weights(file)
            small.load_weights(file)
            growth = Growth()
            model, built = growth.peak(network)
        model.save_weights(file)
        _, loaded = growth.peak(model.load_weights, file)
        records = [one for _, one in _records(model)]
        predicted = building_bytes(
            records, Setting(_DEVICES, shard=shard, device_type="CPU")
        )
        print(f"built {predicted.built / 2**20:.1f} {built:.1f}")
        print(f"loaded {predicted.loaded / 2**20:.1f} {loaded:.1f}", flush=True)
        del model, records


if __name__ == "__main__":
    main(*sys.argv[1:])
