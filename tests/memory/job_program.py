"""A program that measures its steps' memory on each worker of a job.

An argument is `BUILD,SHARD,MICRO_BATCHES`: a function that builds a model, what
is sharded, and the number of micro-batches.
"""

import ctypes
import gc
import os
import sys

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu

ROWS = 32
WIDE_ROWS = 1 << 13
NORMALISED_ROWS = 1 << 8
KINDS = {
    "none": (),
    "optimizer": ("slot",),
    "weights": ("weight", "slot"),
}
"""Kinds of variables that a setting shards."""


def build():
    """A small GPT-like model, and a batch for it."""
    layers, width, length, words = keras.layers, 128, 32, 2000
    tokens = keras.Input((length,), dtype="int32")
    x = layers.Embedding(words, width)(tokens)
    for _ in range(2):
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
    """Bytes of kernels' outputs at the peak of an epoch, variables included.

    Less what was alive when the callback was made.
    """

    def __init__(self):
        super().__init__()
        self._counter = ctypes.CDLL(os.environ["KERASMGPU_TESTS_COUNT_BYTES"])
        for name in ("bytes_outputs", "most_bytes_outputs"):
            getattr(self._counter, name).restype = ctypes.c_long
        self._before = self._counter.bytes_outputs()

    def on_epoch_begin(self, epoch, logs=None):
        self._counter.reset_peaks()

    def on_epoch_end(self, epoch, logs=None):
        self.peak = self._counter.most_bytes_outputs() - self._before


def main(*settings):
    sharded = ()

    def shard(variable):
        return variable.kind in sharded

    strategy = kerasmgpu.strategy(shard=shard)
    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": True}
    )
    for setting in settings:
        build, kinds, micro_batches = setting.split(",")
        sharded = KINDS[kinds]
        strategy.micro_batches = int(micro_batches)
        print(f"{setting} measured {peak(build, strategy)}", flush=True)
        gc.collect()


def peak(build, strategy):
    memory = StepMemory()
    with strategy.scope():
        model, batch = globals()[build]()
    data = tf.data.Dataset.from_tensors(batch).repeat()
    model.fit(data, steps_per_epoch=1, epochs=2, callbacks=[memory], verbose=0)
    return memory.peak


if __name__ == "__main__":
    main(*sys.argv[1:])
