"""Measures a step with the optimizer's slots in host memory, and without.

    python -m benchmarks.offload

A dense layer of 16.8 million weights, Adam, 8 rows, on one logical CPU device
that isn't the host's. Both models train in turns; times are medians.
"""

import os
import statistics
import time

from absl import app

UNITS, ROWS, ROUNDS, STEPS = 4096, 8, 9, 5


def main(argv):
    del argv
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from kerasmgpu.engine.devices import make_logical_cpus

    make_logical_cpus(2)
    import keras
    import numpy as np

    import kerasmgpu

    x = np.ones((STEPS * ROWS, UNITS), "float32")
    models, seconds = [], {None: [], "optimizer": []}
    for offload in seconds:
        strategy = kerasmgpu.MirroredStrategy(
            ["CPU:1"], shard="optimizer", offload=offload
        )
        with strategy.scope():
            dense = keras.layers.Dense(UNITS, use_bias=False)
            models.append(keras.Sequential([keras.Input((UNITS,)), dense]))
            models[-1].compile("adam", "mse")
        models[-1].fit(x, x, ROWS, verbose=0)
    for _ in range(ROUNDS):
        for model, measured in zip(models, seconds.values()):
            before = time.perf_counter()
            model.fit(x, x, ROWS, verbose=0)
            measured.append((time.perf_counter() - before) / STEPS)
    print("| offload | ms per step | of that without |")
    print("|---|---|---|")
    for offload, measured in seconds.items():
        ratios = [one / other for one, other in zip(measured, seconds[None])]
        print(
            f"| {offload or 'none'} | {1000 * statistics.median(measured):.0f} "
            f"| {statistics.median(ratios):.2f} |"
        )


if __name__ == "__main__":
    app.run(main)
