"""One run: a workload trained by one contender with Keras, and timed.

Imported in the child, where the environment has chosen Keras's backend by then.
What a contender does not need is not imported for it: not TensorFlow for JAX,
and not kerasmgpu's step for the others.
"""

import contextlib
import itertools
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


class EpochTimer(keras.callbacks.Callback):
    """Wall and CPU time of each epoch.

    It has no hook for batches, so Keras waits for the devices at an epoch's
    end only.
    """

    def on_train_begin(self, logs=None):
        self.epochs, self._meter = [], EpochMeter()

    def on_epoch_begin(self, epoch, logs=None):
        self._meter.begin()

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(self._meter.end())


def train(job):
    """Trains and returns what was measured.

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
            # Vectors start as Keras has them: scales of normalisations at 1.
            [a if a.ndim < 2 else b for a, b in zip(own, start)]
        )
        model.compile(optimizer, loss, jit_compile=contender.jit_compile)
    loggers = _loggers(contender)
    begin = time.perf_counter()
    first = model.fit(
        _batches(x, y, rows),
        steps_per_epoch=1,
        epochs=1,
        callbacks=loggers,
        verbose=0,
    )
    seconds_to_first_step = time.perf_counter() - begin
    timer = EpochTimer()
    history = model.fit(
        _batches(x, y, rows),
        steps_per_epoch=job["steps"],
        # The first one warms up.
        epochs=1 + MEASURED_EPOCHS,
        callbacks=[*loggers, timer],
        verbose=0,
    )
    weights = model.trainable_weights
    return {
        **figures.of_epochs(timer.epochs[1:], job["steps"], rows),
        "seconds_to_first_step": seconds_to_first_step,
        "peak_memory_mb": peak_memory_mb(),
        "first_loss": first.history["loss"][-1],
        "last_loss": history.history["loss"][-1],
        "global_batch_size": rows,
        "parameters": int(sum(np.prod(w.shape) for w in weights)),
        "devices": names,
    }


def _devices(job):
    """Names of the replicas' devices, and a scope to build the model in."""
    contender, count = job["contender"], job["replicas"]
    virtual_devices = count if job["virtual_devices"] else None
    if CONTENDERS[contender].backend == "jax":
        import jax

        devices = jax.devices()[:count]
        # Keras takes every device where it is told of none.
        keras.distribution.set_distribution(
            keras.distribution.DataParallel(
                devices=[f"{d.platform}:{d.id}" for d in devices]
            )
        )
        return [str(device) for device in devices], contextlib.nullcontext()
    import tensorflow as tf

    import kerasmgpu
    from kerasmgpu.strategies import devices

    if contender.startswith("kerasmgpu"):
        strategy = kerasmgpu.strategy(count, virtual_devices=virtual_devices)
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
    if not contender.logged:
        return []
    from kerasmgpu import callbacks

    return [callbacks.ThroughputLogger()]


def _batches(x, y, rows):
    """The batches, for ever, in the way that the backend is fed best."""
    if keras.backend.backend() != "tensorflow":
        starts = range(0, len(x), rows)
        return (
            (x[start : start + rows], y[start : start + rows])
            for start in itertools.cycle(starts)
        )
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    # Cached as batches: the input is not what is measured.
    dataset = dataset.batch(rows, drop_remainder=True).cache()
    return dataset.repeat().prefetch(tf.data.AUTOTUNE)
