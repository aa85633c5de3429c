"""A program that measures its step's memory on each worker of a job.

Its arguments are what is sharded, a function that builds a model, and the number
of micro-batches.
"""

import ctypes
import os
import sys

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu

ROWS = 64
WIDE_ROWS = 1 << 13
NORMALISED_ROWS = 1 << 8


def build():
    """A small GPT-like model, and a batch for it."""
    layers, width, length, words = keras.layers, 128, 32, 2000
    tokens = keras.Input((length,), dtype="int32")
    x = layers.Embedding(words, width)(tokens)
    for _ in range(4):
        y = layers.LayerNormalization()(x)
        attention = layers.MultiHeadAttention(4, width // 4)
        x = x + attention(y, y, use_causal_mask=True)
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * width, activation="gelu")(y)
        x = x + layers.Dense(width)(y)
    model = keras.Model(tokens, layers.Dense(words)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.AdamW(1e-3, global_clipnorm=1.0)
    model.compile(optimizer, loss, jit_compile=False)
    x = np.random.default_rng(0).integers(0, words, [ROWS, length], "int32")
    return model, (x, np.roll(x, 1, axis=1))


def build_wide():
    """24 dense layers whose activations outweigh their weights, 6 MiB."""
    layers = [keras.layers.Dense(256, "tanh") for _ in range(24)]
    model = keras.Sequential([keras.Input((256,)), *layers])
    model.compile("adam", "mse", jit_compile=False)
    x = np.ones([WIDE_ROWS, 256], "float32")
    return model, (x, x)


def build_normalised():
    """10 convolutions of 16 channels, with batch normalisation."""
    layers = keras.layers
    inputs = x = keras.Input((32, 32, 16))
    for _ in range(10):
        x = layers.Conv2D(16, 3, padding="same")(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    outputs = layers.Dense(10)(layers.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, outputs)
    model.compile("adam", "mse", jit_compile=False)
    x = np.ones([NORMALISED_ROWS, 32, 32, 16], "float32")
    return model, (x, np.ones([NORMALISED_ROWS, 10], "float32"))


class StepMemory(keras.callbacks.Callback):
    """Bytes of kernels' outputs at the peak of an epoch, variables included."""

    def __init__(self):
        super().__init__()
        self._counter = ctypes.CDLL(os.environ["KERASMGPU_TESTS_COUNT_BYTES"])
        self._counter.most_bytes_outputs.restype = ctypes.c_long

    def on_epoch_begin(self, epoch, logs=None):
        self._counter.reset_peaks()

    def on_epoch_end(self, epoch, logs=None):
        self.peak = self._counter.most_bytes_outputs()


def main(shard, build_name="build", micro_batches=1):
    strategy = kerasmgpu.strategy(
        shard=None if shard == "none" else shard,
        micro_batches=int(micro_batches),
    )
    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": True}
    )
    with strategy.scope():
        model, batch = globals()[build_name]()
    data = tf.data.Dataset.from_tensors(batch).repeat()
    memory = StepMemory()
    model.fit(data, steps_per_epoch=1, epochs=5, callbacks=[memory], verbose=0)
    print(f"measured {memory.peak}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
