"""Measures the memory of a step on one replica, on the CPU.

`count_bytes.c` is compiled, preloaded, and counts what TensorFlow's CPU
allocator allocates, byte by byte. (TensorFlow's own statistics: its default CPU
allocator counts nothing, and the BFC allocator, `TF_CPU_ALLOCATOR_USE_BFC=1`,
counts chunks of up to twice the size that was asked for.)

A step that runs on a single CPU device is run by a single-threaded executor,
whose order changes from process to process. An operation on a second device
beside the step makes TensorFlow use the executor that it uses for GPUs.
"""

import ctypes
import os
import pathlib
import shutil
import subprocess

_SOURCE = pathlib.Path(__file__).with_name("count_bytes.c")
_LIBRARY = "KERASMGPU_TESTS_COUNT_BYTES"
_WARM_UP = 3


def has_compiler():
    """Whether `count_bytes.c` can be compiled and preloaded here."""
    return shutil.which("cc") is not None and os.uname().sysname == "Linux"


def environment(folder):
    """Variables of a process that measures.

    Args:
        folder: `pathlib.Path` for the compiled library.
    """
    library = str(folder / "count_bytes.so")
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", library, str(_SOURCE)]
    subprocess.run([*command, "-ldl"], check=True)
    return {
        "LD_PRELOAD": library,
        _LIBRARY: library,
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # oneDNN's kernels keep scratch memory between steps.
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }


def step_peak(step, batch):
    """Bytes that a step needs at its peak beyond what is alive before it.

    Args:
        step: `memory.traced_step.TracedStep` on one replica, of two logical
            CPU devices.
        batch: List of tensors.

    Returns:
        Pair of integers: of kernels' outputs, and of everything.
    """
    import tensorflow as tf

    counter = ctypes.CDLL(os.environ[_LIBRARY])
    for name in ("bytes_all", "bytes_outputs"):
        for function in (name, f"most_{name}"):
            getattr(counter, function).restype = ctypes.c_long
    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": True}
    )
    written = step.program.written()

    @tf.function(autograph=False)
    def run(batch):
        with tf.device("CPU:1"):
            beside = tf.random.normal([])
        return written(batch), beside

    for _ in range(_WARM_UP):
        run(batch)
    counter.reset_peaks()
    outputs, everything = counter.bytes_outputs(), counter.bytes_all()
    run(batch)
    return (
        counter.most_bytes_outputs() - outputs,
        counter.most_bytes_all() - everything,
    )
