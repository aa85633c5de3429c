"""A program that measures its steps' memory on each worker of a job.

An argument is `MODEL,SHARD,MICRO_BATCHES`: a function of `job_models`; what is
sharded, or `layout` for a model that sets a distribution; and the number of
micro-batches.
"""

import contextlib
import ctypes
import gc
import os
import sys

import keras
import tensorflow as tf

import kerasmgpu
from tests.memory import job_models


class StepMemory(keras.callbacks.Callback):
    """Bytes at the peak of steps, less what was alive before the model.

    Of all steps but the first, an epoch each: gradients may be accumulated over
    some.

    Attributes:
        peaks: Integers: of kernels' outputs, and of everything.
    """

    def __init__(self):
        super().__init__()
        self._counter = ctypes.CDLL(os.environ["KERASMGPU_TESTS_COUNT_BYTES"])
        for name in ("bytes_outputs", "bytes_all"):
            for function in (name, f"most_{name}"):
                getattr(self._counter, function).restype = ctypes.c_long
        self._before = self._counter.bytes_outputs(), self._counter.bytes_all()
        self.peaks = 0, 0

    def on_epoch_begin(self, epoch, logs=None):
        self._counter.reset_peaks()

    def on_epoch_end(self, epoch, logs=None):
        if epoch:
            most = (
                self._counter.most_bytes_outputs,
                self._counter.most_bytes_all,
            )
            peaks = (one() - before for one, before in zip(most, self._before))
            self.peaks = tuple(map(max, self.peaks, peaks))


def main(*settings):
    """Trains each model with a strategy of its own, and prints its peaks."""
    for setting in settings:
        name, shard, micro_batches = setting.split(",")
        scope = contextlib.nullcontext()
        if shard != "layout":
            scope = kerasmgpu.strategy(
                shard=None if shard == "none" else shard,
                micro_batches=int(micro_batches),
            ).scope()
        tf.config.optimizer.set_experimental_options(
            {"disable_meta_optimizer": True}
        )
        outputs, everything = peaks(getattr(job_models, name), scope)
        print(f"{setting} measured {outputs} {everything}", flush=True)
        gc.collect()


def peaks(build, scope):
    memory = StepMemory()
    with scope:
        model, data = build()
    data = data.repeat()
    model.fit(data, steps_per_epoch=1, epochs=3, callbacks=[memory], verbose=0)
    return memory.peaks


if __name__ == "__main__":
    main(*sys.argv[1:])
