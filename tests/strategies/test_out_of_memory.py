"""A batch that is too large for a device's memory, with TensorFlow's allocator."""

import os
import subprocess
import sys

import pytest

# The allocator of GPUs, on the CPU, with a limit. A larger allocation fails
# after ten seconds of waiting, as on a GPU.
_LIMITED = {
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": "100",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}

_PROGRAM = """
import sys
import keras, numpy as np, tensorflow as tf
import kerasmgpu

micro_batches, rows = sys.argv[1], int(sys.argv[2])
strategy = kerasmgpu.MirroredStrategy(
    ["CPU:0"],
    micro_batches=micro_batches if micro_batches == "auto" else int(micro_batches),
)
with strategy.scope():
    inner = [keras.layers.Dense(256, "relu") for _ in range(40)]
    model = keras.Sequential([keras.Input((256,)), *inner])
    model.compile("sgd", "mse")
x = np.ones([rows, 256], "float32")
data = tf.data.Dataset.from_tensors((x, x)).repeat()
try:
    model.fit(data, steps_per_epoch=2, verbose=0)
    print("trained", int(model.optimizer.iterations))
except tf.errors.ResourceExhaustedError:
    print("out of memory")
"""


def _outcome(micro_batches, rows):
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(micro_batches), str(rows)],
        env={**os.environ, **_LIMITED},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.mark.nightly
def test_auto_trains_a_batch_8_times_what_fits():
    assert _outcome(1, 1024) == "trained 2"
    assert _outcome(1, 2048) == "out of memory"
    assert _outcome("auto", 8 * 1024) == "trained 2"
