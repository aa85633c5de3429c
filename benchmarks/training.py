"""One run: trains a workload with one Keras contender and measures it.

Imported in the child process, whose environment selects Keras's backend. A
contender's run imports only the packages that it needs: no TensorFlow for JAX,
no kerasmgpu step for the others.
"""

import atexit
import contextlib
import itertools
import pathlib
import shutil
import tempfile
import time

import keras
import numpy as np

from benchmarks import figures
from benchmarks.contenders import CONTENDERS
from benchmarks.meter import (
    MEASURED_EPOCHS,
    EpochMeter,
    peak_memory_mb,
)
from benchmarks.workloads import (
    NUM_BATCHES,
    WORKLOADS,
    start_weights,
)

_MOST_SECONDS = 600.0
"""Within which `ChooseXla` must have chosen."""


class EpochTimer(keras.callbacks.Callback):
    """Callback that measures wall and CPU time of each epoch.

    It has no batch hook, so Keras waits for the devices only at the end of an
    epoch.
    """

    def on_train_begin(self, logs=None):
        self.epochs, self._meter = [], EpochMeter()

    def on_epoch_begin(self, epoch, logs=None):
        self._meter.begin()

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(self._meter.end())


def train(job):
    """Trains a model and returns the measurements.

    Args:
        job: Dictionary of `workload`, `contender`, `replicas`,
            `global_batch_size`, `steps` and `virtual_devices` (boolean).

    Returns:
        Dictionary of `figures.FIGURES`, and the facts of the model.
    """
    workload = WORKLOADS[job["workload"]]
    contender = CONTENDERS[job["contender"]]
    rows = job["global_batch_size"]
    x, y = workload.arrays(np.random.default_rng(1), rows * NUM_BATCHES)
    names, scope = _devices(job)
    with scope:
        model, optimizer, loss = workload.build()
        own = model.get_weights()
        start = start_weights([weight.shape for weight in own])
        model.set_weights(
            # Vectors keep Keras's initial values, such as normalisation's 1.
            [a if a.ndim < 2 else b for a, b in zip(own, start)]
        )
        model.compile(optimizer, loss, jit_compile=contender.jit_compile)
    loggers = _loggers(contender)
    meter = EpochMeter()
    meter.begin()
    first = model.fit(
        batches(x, y, rows),
        steps_per_epoch=1,
        epochs=1,
        callbacks=loggers,
        verbose=0,
    )
    first_step = meter.end()
    if contender.chooses_xla:
        _choose_xla(model, batches(x, y, rows), job["steps"])
    timer = EpochTimer()
    history = model.fit(
        batches(x, y, rows),
        steps_per_epoch=job["steps"],
        # The first epoch is the warm-up.
        epochs=1 + MEASURED_EPOCHS,
        callbacks=[*loggers, timer],
        verbose=0,
    )
    weights = model.trainable_weights
    return {
        **figures.of_epochs(timer.epochs[1:], job["steps"], rows),
        "seconds_to_first_step": first_step.wall_seconds,
        "cpu_seconds_to_first_step": first_step.cpu_seconds,
        "peak_memory_mb": peak_memory_mb(),
        "first_loss": first.history["loss"][-1],
        "last_loss": history.history["loss"][-1],
        "global_batch_size": rows,
        "parameters": int(sum(np.prod(w.shape) for w in weights)),
        "devices": names,
    }


def _devices(job):
    """Returns the replicas' device names, and the scope for the model."""
    contender, count = job["contender"], job["replicas"]
    virtual_devices = count if job["virtual_devices"] else None
    if CONTENDERS[contender].backend == "jax":
        import jax

        devices = jax.devices()[:count]
        # Keras takes all devices by default.
        keras.distribution.set_distribution(
            keras.distribution.DataParallel(
                devices=[f"{d.platform}:{d.id}" for d in devices]
            )
        )
        return [str(device) for device in devices], contextlib.nullcontext()
    import tensorflow as tf

    import kerasmgpu
    from kerasmgpu.engine import devices

    if contender.startswith("kerasmgpu"):
        if CONTENDERS[contender].as_gpus:
            devices.run_as_gpus()
        strategy = kerasmgpu.strategy(
            count,
            virtual_devices=virtual_devices,
            shard=CONTENDERS[contender].shard,
        )
        names = [
            name.rpartition("device:")[2]
            for name in strategy.extended.worker_devices
        ]
        return names, strategy.scope()
    names = devices.choose(count, virtual_devices=virtual_devices)
    if CONTENDERS[contender].one_device:
        return names, contextlib.nullcontext()
    return names, tf.distribute.MirroredStrategy(names).scope()


def _loggers(contender):
    if not contender.logged and not contender.watched:
        return []
    from kerasmgpu import callbacks

    if contender.logged:
        return [callbacks.ThroughputLogger()]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kerasmgpu-watched-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [
        callbacks.ThroughputLogger(folder / "throughput.jsonl"),
        callbacks.Progress(),
        callbacks.Monitors(folder / "tensorboard", norms="global"),
        callbacks.DeviceStats(folder / "devices.jsonl"),
        callbacks.RunRecord(folder),
        callbacks.HangWatch(),
    ]


def _choose_xla(model, data, steps):
    """Trains until `ChooseXla` has chosen."""
    from kerasmgpu import callbacks

    choose = callbacks.ChooseXla()
    end = time.monotonic() + _MOST_SECONDS
    while choose.uses_xla is None:
        if time.monotonic() > end:
            raise RuntimeError("ChooseXla chose nothing; its log line says why")
        model.fit(data, steps_per_epoch=steps, callbacks=[choose], verbose=0)


def batches(x, y, rows):
    """Returns the endlessly repeated batches in the backend's best format."""
    if keras.backend.backend() != "tensorflow":
        starts = range(0, len(x), rows)
        return (
            (x[start : start + rows], y[start : start + rows])
            for start in itertools.cycle(starts)
        )
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    # Batches are cached, so that the input pipeline is not measured.
    dataset = dataset.batch(rows, drop_remainder=True).cache()
    return dataset.repeat().prefetch(tf.data.AUTOTUNE)
