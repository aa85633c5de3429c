"""Measures the memory of a step on one replica, on the CPU.

With `TF_CPU_ALLOCATOR_USE_BFC=1` TensorFlow allocates tensors on CPUs as on
GPUs, by its BFC allocator, which counts bytes in use and their peak. It counts
chunks: sizes are multiples of 256 bytes, and a free chunk of less than twice
the size that is asked for is used whole. The start is one free region, so that
chunks are cut to size as far as possible.
"""

import os

os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"

import statistics

import numpy as np
import tensorflow as tf

_REGION_BYTES = 2 << 30
_STEPS = 5
_DEVICE = "CPU:0"


def reserve():
    """Makes one large free region, before anything else is allocated."""
    tf.config.threading.set_intra_op_parallelism_threads(
        int(os.environ.get("INTRA", "1"))
    )
    tf.config.threading.set_inter_op_parallelism_threads(
        int(os.environ.get("INTER", "1"))
    )
    with tf.device(_DEVICE):
        tensor = tf.raw_ops.Empty(shape=[_REGION_BYTES // 8], dtype=tf.int64)
    del tensor


def in_use():
    """Bytes that are in use now."""
    return tf.config.experimental.get_memory_info(_DEVICE)["current"]


def step_peak(step, batch):
    """Bytes that a step needs beyond what is alive before it.

    Args:
        step: `memory.traced_step.TracedStep` on one replica.
        batch: List of tensors.

    Returns:
        Integer, the median of several steps.
    """
    run, peaks = step.program.written(), []
    for _ in range(2):  # Kernels are made, and constants allocated.
        run(batch)
    for _ in range(_STEPS):
        tf.config.experimental.reset_memory_stats(_DEVICE)
        before = in_use()
        run(batch)
        peak = tf.config.experimental.get_memory_info(_DEVICE)["peak"]
        peaks.append(peak - before)
    return int(statistics.median(peaks))


def tiled(nest, rows):
    """The rows of arrays over and over, until there are `rows`."""

    def leaf(array):
        array = np.asarray(array)
        return np.concatenate([array] * -(-rows // len(array)))[:rows]

    return tf.nest.map_structure(leaf, nest)
