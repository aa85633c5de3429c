"""Measures the memory and time of a step with `recompute=`, on two replicas.

    python -m benchmarks.recompute

A GPT-like model with dropout trains with one setting after the other, in turns;
the first is without. Bytes are what `kerasmgpu memory` predicts for a replica on
a GPU; times are medians, as multiples of the first.
"""

import os
import statistics
import time

from absl import app

SETTINGS = (None, "elementwise", "200MiB", "120MiB", "80MiB")
LENGTH, WIDTH, WORDS, BLOCKS, ROWS = 128, 128, 500, 6, 32
ROUNDS, STEPS = 7, 3


def built():
    """A model of six blocks, and a batch of 32 texts of 128 words."""
    import keras
    import numpy as np
    from keras import layers

    inputs = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, WIDTH)(inputs)
    for _ in range(BLOCKS):
        h = layers.LayerNormalization()(x)
        h = layers.MultiHeadAttention(4, WIDTH // 4, dropout=0.1)(h, h)
        x += layers.Dropout(0.1)(h)
        h = layers.LayerNormalization()(x)
        h = layers.Dense(4 * WIDTH, activation="gelu")(h)
        x += layers.Dropout(0.1)(layers.Dense(WIDTH)(h))
    x = layers.LayerNormalization()(x)
    model = keras.Model(inputs, layers.Dense(WORDS, activation="softmax")(x))
    model.compile("adam", "sparse_categorical_crossentropy")
    words = np.zeros((ROWS, LENGTH), "int32")
    return model, (words, words)


def main(argv):
    del argv
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from kerasmgpu.engine.devices import make_logical_cpus

    make_logical_cpus(2)
    import keras

    import kerasmgpu

    models, seconds = [], [[] for _ in SETTINGS]
    for setting in SETTINGS:
        keras.utils.set_random_seed(1)
        devices = ["CPU:0", "CPU:1"]
        with kerasmgpu.MirroredStrategy(devices, recompute=setting).scope():
            model, batch = built()
        models.append(model)
        model.fit(*batch, ROWS, epochs=2, verbose=0)
    for _ in range(ROUNDS):
        for model, measured in zip(models, seconds):
            before = time.perf_counter()
            model.fit(*batch, ROWS, epochs=STEPS, verbose=0)
            measured.append((time.perf_counter() - before) / STEPS)
    print("| recompute | activations, workspace | total | time of a step |")
    print("|---|---|---|---|")
    for setting, measured in zip(SETTINGS, seconds):
        report = kerasmgpu.memory.memory(
            "benchmarks.recompute:built",
            replicas=2,
            micro_batches=1,
            recompute=setting,
            show=False,
        )
        (row,) = report["rows"]
        held = (row["activations"] + row["workspace"]) / 2**20
        ratios = [one / first for one, first in zip(measured, seconds[0])]
        print(
            f"| {setting or 'none'} | {held:.1f} MiB | "
            f"{row['total'] / 2**20:.1f} MiB | "
            f"{statistics.median(ratios):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    app.run(main)
