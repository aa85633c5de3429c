"""Trains a workload in one thread per pool, and profiles ten of its steps."""

import collections
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu
from benchmarks import training
from benchmarks.contenders import CONTENDERS
from benchmarks.host_share import shares
from benchmarks.workloads import NUM_BATCHES, WORKLOADS
from kerasmgpu.commands import child_processes
from kerasmgpu.placement import xplane

_PROFILED = 10
_ROUNDS = 4


class _Profile(keras.callbacks.Callback):
    """Records steps, after as many that aren't recorded."""

    reads_batch_logs = False

    def __init__(self, folder):
        super().__init__()
        self._folder = folder

    def on_train_batch_begin(self, batch, logs=None):
        if batch == _PROFILED:
            options = tf.profiler.experimental.ProfilerOptions(
                python_tracer_level=0, device_tracer_level=0
            )
            tf.profiler.experimental.start(self._folder, options)

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2 * _PROFILED - 1:
            self.model.optimizer.iterations.numpy()  # Waits for the step.
            tf.profiler.experimental.stop()


def main(job):
    """Returns the CPU time of a step and its parts.

    Args:
        job: Dictionary of `workload`, `contender`, `replicas` and `steps`.
    """
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    workload = WORKLOADS[job["workload"]]
    rows = workload.global_batch_size
    x, y = workload.arrays(np.random.default_rng(1), rows * NUM_BATCHES)
    with kerasmgpu.strategy(virtual_devices=job["replicas"]).scope():
        model, optimizer, loss = workload.build()
        compiled = CONTENDERS[job["contender"]].jit_compile
        model.compile(optimizer, loss, jit_compile=compiled)
    batches = training.batches(x, y, rows)
    model.fit(batches, steps_per_epoch=job["steps"], verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        rounds = [
            _measured(model, batches, job["steps"], f"{folder}/{number}")
            for number in range(_ROUNDS)
        ]
    # The fastest ones: other programs share the cores.
    steps, profiles = zip(*rounds)
    cpu, python = min(steps)
    divided = [
        shares.divide(cpu, python, threads, _PROFILED) for threads in profiles
    ]
    parts = max(divided, key=lambda parts: parts["executor"])
    return {**job, "cpu": cpu, "parts": parts}


def _measured(model, batches, steps, folder):
    """Trains twice, not recorded and recorded.

    Returns:
        Milliseconds of CPU time of a step of the first, of the process and of
        the calling thread; and the events of the second, see `shares.divide`.
    """
    process, thread = time.process_time(), time.thread_time()
    model.fit(batches, steps_per_epoch=steps, verbose=0)
    process, thread = time.process_time() - process, time.thread_time() - thread
    model.fit(
        batches,
        steps_per_epoch=3 * _PROFILED,
        verbose=0,
        callbacks=[_Profile(folder)],
    )
    threads = collections.defaultdict(list)
    for event in xplane.read(folder):
        if event.plane == "/host:CPU" and event.line != "python":
            threads[event.line].append((event.start, event.seconds, event.name))
    return (process / steps * 1e3, thread / steps * 1e3), threads


if __name__ == "__main__":
    child_processes.do_job(main)
