"""A worker that records its devices; worker 1 holds 300 MB more than worker 0.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.devices_program FILE
"""

import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import kerasmgpu


def main(path):
    """Trains two epochs; writes samples to `path`, and each worker's history."""
    strategy = kerasmgpu.strategy()
    import keras

    worker = strategy.cluster_resolver.task_id
    held = np.ones(300_000_000 * worker, np.uint8)
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
    x = np.ones((8, 2))
    stats = kerasmgpu.callbacks.DeviceStats(path)
    history = model.fit(x, x, epochs=2, verbose=0, callbacks=[stats]).history
    pathlib.Path(f"{path}.history{worker}").write_text(json.dumps(history))
    return held


if __name__ == "__main__":
    main(sys.argv[1])
