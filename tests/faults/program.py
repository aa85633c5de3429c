"""A worker to which a fault happens, in its third epoch, or several do.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.faults.program FAULT[,FAULT …] FOLDER HANG_SECONDS

The last worker has the fault; `FOLDER/begun` appears, with its process, when it
happens, and it is over when there is `FOLDER/over FAULT`. The next one happens
two epochs later.
"""

import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import kerasmgpu
from kerasmgpu.job import workers

NUM_EPOCHS = 1000
ROWS, BATCH = 16, 4
EPOCH = 2


class Fault:
    """Whether a fault happens, here and now."""

    def __init__(self, names, folder, strategy):
        self.names, self.folder = names, pathlib.Path(folder)
        last = workers.count(strategy) - 1
        self.is_here = workers.index(strategy) == last
        self.epoch = 0

    def happens(self, name):
        if name not in self.names or not self.is_here or self.is_over(name):
            return False
        if self.epoch < EPOCH + 2 * self.names.index(name):
            return False
        self.begin()
        return True

    def is_over(self, name):
        return (self.folder / f"over {name}").exists()

    def wait(self, name):
        """Hangs."""
        while not self.is_over(name):
            time.sleep(0.1)

    def begin(self):
        begun = self.folder / "begun"
        if not begun.exists():
            begun.write_text(str(os.getpid()))


def main(names, folder, hang_seconds):
    """Trains until a fault, or the one who looks on, ends it."""
    in_job = "TF_CONFIG" in os.environ
    strategy = kerasmgpu.strategy(virtual_devices=None if in_job else 2)
    fault = Fault(names.split(","), folder, strategy)
    hang_seconds = float(hang_seconds) or None
    model = model_of(strategy, fault)
    model.fit(
        data_of(fault),
        epochs=NUM_EPOCHS,
        verbose=0,
        callbacks=callbacks_of(fault, hang_seconds),
    )


def model_of(strategy, fault):
    """Seven layers of the user's; two of them can fail."""
    import keras
    import tensorflow as tf

    class Slow(keras.layers.Layer):
        """Takes 0.3 s; runs out of memory."""

        def call(self, x):
            def wait(number):
                if fault.happens("slow worker"):
                    time.sleep(0.3)
                if fault.happens("out of memory"):
                    raise MemoryError("no memory")
                return number

            mean = tf.reduce_mean(tf.stop_gradient(x))
            waited = tf.numpy_function(wait, [mean], tf.float32, stateful=False)
            waited.set_shape([])
            return x + 0 * waited

    class Logarithm(keras.layers.Layer):
        """NaN where the input's first column is negative."""

        def call(self, x, given):
            return x + 0 * tf.math.log(given[:, :1])

    with strategy.scope():
        given = x = keras.Input((3,))
        for number in range(1, 7):
            x = keras.layers.Dense(4, name=f"layer_{number}")(x)
        x = Logarithm(name="layer_7")(x, given)
        if {"slow worker", "out of memory"} & {*fault.names}:
            x = Slow()(x)
        model = keras.Model(given, keras.layers.Dense(1)(x))
        model.compile("sgd", "mse")
    return model


def data_of(fault):
    """Batches of a Python generator, which can fail."""
    import tensorflow as tf

    def rows():
        for number in range(ROWS):
            row = np.ones([3], "float32")
            if number == 9 and fault.happens("data block"):
                fault.wait("data block")
            if number == 9 and fault.happens("data raise"):
                raise OSError("shard 9 can't be read")
            if number == 7 and fault.happens("NaN in layer 7"):
                row[0] = -1
            if number == 7 and fault.happens("infinity in a row"):
                row[2] = np.inf
            yield row, np.ones([1], "float32")

    signature = tf.TensorSpec([3]), tf.TensorSpec([1])
    data = tf.data.Dataset.from_generator(rows, output_signature=signature)
    data = data.apply(tf.data.experimental.assert_cardinality(ROWS))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return data.batch(BATCH).with_options(options)


def callbacks_of(fault, hang_seconds):
    """The callbacks that look on, and the user's."""
    import keras

    class Users(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            fault.epoch = epoch
            for name in {"stopped", "killed", "checkpoint"} & {*fault.names}:
                fault.happens(name)
                time.sleep(0.05)

        def on_epoch_end(self, epoch, logs=None):
            if fault.happens("callback sleeps"):
                fault.wait("callback sleeps")
            if fault.happens("skipped evaluation"):
                x = np.ones([ROWS, 3])
                self.model.evaluate(x, x[:, :1], verbose=0)

    callbacks = kerasmgpu.callbacks
    found = [
        callbacks.HangWatch(hang_seconds),
        callbacks.NotFinite(),
        callbacks.ThroughputLogger(fault.folder / "throughput.jsonl"),
        Users(),
    ]
    if "checkpoint" in fault.names:
        found.append(callbacks.Checkpoint(fault.folder / "disk"))
    if "lost GPU" in fault.names:
        found.append(lost_gpu(fault))
    return found


def lost_gpu(fault):
    """`DeviceStats` of a GPU with recorded answers, which is lost."""
    import pytest
    import tensorflow as tf

    from kerasmgpu.callbacks import device_sampler, device_stats
    from kerasmgpu.hardware import cuda_devices
    from tests.hardware.recorded_nvml import GIB, LOST, Library, h100, install

    answers, patch = h100(1), pytest.MonkeyPatch()

    class Losing(device_stats.DeviceStats):
        def on_epoch_begin(self, epoch, logs=None):
            if fault.happens("lost GPU"):
                answers.update(dict.fromkeys(answers, LOST))

    install(patch, Library([answers]))
    uuid, memory = answers["nvmlDeviceGetUUID"], {"current": 0, "peak": GIB}
    patch.setattr(device_stats, "local_devices", lambda strategy: ["GPU:0"])
    patch.setattr(device_sampler.devices, "physical_gpus", lambda: {"GPU:0": 0})
    patch.setattr(cuda_devices, "uuids", lambda ordinal: [uuid])
    patch.setattr(
        tf.config.experimental, "get_memory_info", lambda name: memory
    )
    return Losing(seconds=0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
