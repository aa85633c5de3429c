"""Small training steps, written for GPUs that needn't exist."""

import functools

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import kerasmgpu
from kerasmgpu.commands.traced_step import trace_step
from kerasmgpu.memory.state_bytes import Setting
from kerasmgpu.memory.traced_step import with_variables
from kerasmgpu.memory.written_step import WrittenStep
from kerasmgpu.partitioner.runtime.program import Program

_RANDOM = np.random.default_rng(0)


def fitted(model, rows=24, optimizer="sgd", **settings):
    model.compile(optimizer, "mse", **settings)
    x = _RANDOM.normal(size=(rows, *model.input_shape[1:])).astype("float32")
    y = _RANDOM.normal(size=(rows, 1)).astype("float32")
    return model, (x, y)


def normalised(jit_compile=False):
    """Two batch normalisations: moments are summed twice, and gradients."""
    return fitted(
        keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(8, name="first"),
                layers.BatchNormalization(),
                layers.Dense(8, "tanh"),
                layers.BatchNormalization(),
                layers.Dense(1),
            ]
        ),
        jit_compile=jit_compile,
    )


def of_two_types():
    """Gradients of two types: nothing but their order keeps sums apart."""
    return fitted(
        keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(8, "tanh"),
                layers.Dense(8, "tanh", dtype="float64"),
                layers.Dense(1),
            ]
        )
    )


class Rounds(layers.Layer):
    """As many rounds as a value of the batch says, each with two sums."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))

    def call(self, x):
        def one_round(number, x):
            x = x - tf.reduce_mean(tf.tanh(x @ self.kernel), 0, keepdims=True)
            return number + 1, x / (1 + tf.reduce_max(x, 0, keepdims=True))

        count = tf.reduce_max(tf.cast(x[:, 0], "int32"))
        return tf.while_loop(
            lambda number, x: number < count,
            one_round,
            (tf.constant(0), x),
            maximum_iterations=4,
        )[1]


def loop():
    """A loop with collectives, whose rounds all replicas have to agree on."""
    return fitted(
        keras.Sequential([keras.Input((6,)), Rounds(), layers.Dense(1)])
    )


class Either(layers.Layer):
    """One of two branches, each with two sums, by a sum over the batch."""

    def call(self, x):
        def centred():
            y = x - tf.reduce_mean(x, 0, keepdims=True)
            return y / (1 + tf.reduce_mean(y * y, 0, keepdims=True))

        def scaled():
            y = x / (1 + tf.reduce_max(x, 0, keepdims=True))
            return y - tf.reduce_min(y, 0, keepdims=True)

        return tf.cond(tf.reduce_sum(x) > 0, centred, scaled)


def branch():
    """A branch with collectives."""
    return fitted(
        keras.Sequential([keras.Input((6,)), Either(), layers.Dense(1)])
    )


def stateful():
    """Loops that one replica runs for all: they communicate before and behind."""
    model = keras.Sequential([keras.Input(batch_shape=(24, 5, 3))])
    model.add(layers.LSTM(4, return_sequences=True, stateful=True))
    model.add(layers.GRU(4, stateful=True))
    model.add(layers.Dense(1))
    return fitted(model)


def table():
    """Rows of a divided table, which workers send each other: keys by sizes."""
    model = keras.Sequential([keras.Input((5,), dtype="int32")])
    model.add(layers.Embedding(40, 4))
    model.add(layers.GlobalAveragePooling1D())
    model.add(layers.Dense(1))
    model.compile("sgd", "mse")
    x = _RANDOM.integers(0, 40, size=(24, 5))
    return model, (x, x[:, :1].astype("float32"))


class Label(layers.Layer):
    """Makes a text, for which GPUs have no kernel."""

    def call(self, x):
        text = tf.strings.as_string(tf.reduce_sum(x))
        length = tf.strings.length(text)
        return x * tf.cast(length, x.dtype)


def text():
    """A text that is made in the step."""
    return fitted(
        keras.Sequential([keras.Input((6,)), Label(), layers.Dense(1)])
    )


class Count(layers.Layer):
    """Counts steps in a variable, by an operation that GPUs have no kernel for."""

    def build(self, shape):
        self.count = tf.Variable(0, dtype="int64", trainable=False)

    def call(self, x):
        number = tf.raw_ops.ResourceCountUpTo(
            resource=self.count.handle, limit=1000, T=tf.int64
        )
        return x + 0 * tf.cast(number, x.dtype)

    def compute_output_shape(self, shape):
        return shape


def counted():
    """A variable that can't be on a GPU."""
    return fitted(
        keras.Sequential([keras.Input((6,)), Count(), layers.Dense(1)])
    )


@functools.cache
def traced(make):
    """The traced step of a program of this module."""
    strategy = kerasmgpu.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model, data = make()
        return with_variables(model, trace_step(model, data, None))


def setting(**settings):
    """That of four replicas, unless others are given."""
    return Setting(**{"num_replicas": 4, "min_shard_bytes": 0, **settings})


def written(make, worker=0, change=None, **settings):
    """A step as a worker runs it; `change` gets its `library`, if given."""
    arguments = traced(make), setting(**settings), worker, True
    if change is None:
        return WrittenStep(*arguments)
    emitted = Program.emitted

    def changed(program, with_outputs=True):
        made = emitted(program, with_outputs)
        change(made.build.library)
        return made

    Program.emitted = changed
    try:
        return WrittenStep(*arguments)
    finally:
        Program.emitted = emitted


def collectives(library, device):
    """Nodes of a device's collectives in the step's own function, in order."""
    return [
        node
        for node in library[-1].node_def
        if node.op.startswith("Collective") and node.device.endswith(device)
    ]
