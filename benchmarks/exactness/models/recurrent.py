"""Recurrent layers: masks, states, both directions, loops over time."""

import keras
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import integers, reals, sentences
from benchmarks.exactness.models.fitted import fitted
from benchmarks.exactness.models.transformers import token_loss
from benchmarks.exactness.registry import model


def tagger(*hidden, units=5):
    """A class per token of a masked sentence."""
    result = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(9, 4, mask_zero=True),
            *hidden,
            layers.Dense(units),
        ]
    )
    result.compile(
        keras.optimizers.Adam(0.02), token_loss(), metrics=["accuracy"]
    )
    return fitted(result, sentences(9, 9, 6), integers(5, 9, 6, seed=2))


@model("recurrent", replica_counts=(2, 3), evaluates=True, predicts=True)
def stacked_lstm_with_a_mask():
    return tagger(
        layers.LSTM(4, return_sequences=True),
        layers.LSTM(3, return_sequences=True, dropout=0.2, seed=1),
    )


@model("recurrent")
def bidirectional_gru_with_a_mask():
    return tagger(
        layers.Bidirectional(layers.GRU(4, return_sequences=True)),
        layers.Bidirectional(
            layers.LSTM(3, return_sequences=True), merge_mode="sum"
        ),
    )


@model("recurrent")
def simple_cells_in_a_stack():
    cells = [layers.SimpleRNNCell(4), layers.GRUCell(3, reset_after=False)]
    return tagger(layers.RNN(cells, return_sequences=True))


@model("recurrent")
def unrolled_lstm():
    result = keras.Sequential(
        [
            keras.Input((5, 3)),
            layers.LSTM(4, unroll=True, recurrent_dropout=0.2, seed=3),
            layers.Dense(1),
        ]
    )
    result.compile(keras.optimizers.RMSprop(0.02), "mse")
    return fitted(result, reals(9, 5, 3), reals(9, 1, seed=1))


@model("recurrent")
def states_from_encoder_to_decoder():
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    x = layers.Embedding(9, 4, mask_zero=True)(source)
    _, hidden, cell = layers.LSTM(5, return_state=True)(x)
    x = layers.Embedding(9, 4, mask_zero=True)(target)
    x = layers.LSTM(5, return_sequences=True)(x, initial_state=[hidden, cell])
    both = keras.Model([source, target], layers.Dense(9)(x))
    both.compile(keras.optimizers.Adam(0.02), token_loss())
    words = sentences(9, 9, 6, seed=5)
    return fitted(both, [sentences(9, 9, 4), words[:, :-1]], words[:, 1:])


@model("recurrent")
def attention_over_a_gru():
    """Bahdanau's attention, and a layer that returns states as outputs."""
    tokens = keras.Input((None,), dtype="int32")
    x = layers.Embedding(9, 4, mask_zero=True)(tokens)
    every, last = layers.GRU(4, return_sequences=True, return_state=True)(x)
    query = layers.Reshape((1, 4))(last)
    mixed = layers.AdditiveAttention()([query, every])
    mixed = layers.Flatten()(layers.Attention(use_scale=True)([mixed, every]))
    result = keras.Model(tokens, [layers.Dense(1)(mixed), last])
    result.compile(keras.optimizers.Adam(0.02), ["mse", "mae"])
    return fitted(
        result, sentences(9, 9, 6), [reals(9, 1, seed=1), reals(9, 4, seed=2)]
    )


@model("recurrent")
def stateful_lstm():
    """The states of one batch are where the next one begins."""
    inputs = keras.Input(batch_shape=(4, 5, 3))
    x = layers.LSTM(4, stateful=True, return_sequences=True)(inputs)
    x = layers.GRU(3, stateful=True)(x)
    result = keras.Model(inputs, layers.Dense(1)(x))
    result.compile(keras.optimizers.Adam(0.02), "mse")
    return fitted(result, reals(12, 5, 3), reals(12, 1, seed=1))


@model("recurrent")
def convolutional_lstm():
    result = keras.Sequential(
        [
            keras.Input((3, 5, 5, 2)),
            layers.ConvLSTM2D(3, 3, return_sequences=True, dropout=0.2, seed=1),
            layers.BatchNormalization(),
            layers.ConvLSTM2D(2, 2, padding="same"),
            layers.GlobalMaxPooling2D(),
            layers.Dense(1),
        ]
    )
    result.compile(keras.optimizers.Adam(0.02), "mse")
    return fitted(result, reals(9, 3, 5, 5, 2), reals(9, 1, seed=1))


@model("recurrent")
def the_same_layers_for_every_frame():
    result = keras.Sequential(
        [
            keras.Input((3, 6, 6, 2)),
            layers.TimeDistributed(layers.Conv2D(3, 3, activation="relu")),
            layers.TimeDistributed(layers.MaxPooling2D()),
            layers.TimeDistributed(layers.BatchNormalization()),
            layers.TimeDistributed(layers.Flatten()),
            layers.LSTM(4),
            layers.RepeatVector(3),
            layers.Dense(2),
        ]
    )
    result.compile(keras.optimizers.Adam(0.02), "mse")
    return fitted(result, reals(9, 3, 6, 6, 2), reals(9, 3, 2, seed=1))


class OwnLoop(layers.Layer):
    """A leaky sum over time by a `tf.while_loop` and a `TensorArray`."""

    def build(self, shape):
        self.decay = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, inputs):
        by_time = ops.transpose(inputs, (1, 0, 2))
        length = tf.shape(by_time)[0]
        sums = tf.TensorArray(inputs.dtype, length)

        def step(time, state, sums):
            state = ops.sigmoid(self.decay) * state + by_time[time]
            return time + 1, state, sums.write(time, ops.tanh(state))

        _, last, sums = tf.while_loop(
            lambda time, *_: time < length,
            step,
            (0, tf.zeros_like(by_time[0]), sums),
        )
        return ops.transpose(sums.stack(), (1, 0, 2)) + last[:, None]


@model("recurrent")
def own_loop_over_time():
    result = keras.Sequential(
        [keras.Input((5, 3)), layers.Dense(4), OwnLoop(), layers.Dense(1)]
    )
    result.compile(keras.optimizers.Adam(0.02), "mse")
    return fitted(result, reals(9, 5, 3), reals(9, 5, 1, seed=1))


class Halves(layers.Layer):
    """Halves a row until its length is below 1, and counts how often.

    Every replica would stop at another pass, were the loop not one for all.
    """

    def call(self, inputs):
        def step(x, passes):
            return ops.where(ops.max(ops.abs(x)) > 0.5, x / 2, x), passes + 1

        x, passes = ops.while_loop(
            lambda x, passes: ops.max(ops.abs(x)) > 0.5,
            step,
            (inputs, ops.zeros((), inputs.dtype)),
            maximum_iterations=20,
        )
        return x * (1 + passes)


@model("recurrent")
def loop_that_the_whole_batch_ends():
    result = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3), Halves(), layers.Dense(1)]
    )
    result.compile(keras.optimizers.SGD(0.02), "mse")
    return fitted(result, reals(9, 4), reals(9, 1, seed=1))


class LossByScan(keras.losses.Loss):
    """Connectionist temporal classification, which scans over time."""

    def call(self, y_true, y_pred):
        lengths = ops.sum(ops.ones_like(y_pred[..., 0], "int32"), axis=1)
        labels = ops.sum(ops.cast(y_true > 0, "int32"), axis=1)
        return ops.ctc_loss(y_true, y_pred, labels, lengths)


@model(
    "recurrent",
    precision="float32",
    tolerance=2e-4,
    why="TensorFlow's CTC loss takes logarithms of probabilities in float32",
)
def speech_with_ctc():
    result = keras.Sequential(
        [
            keras.Input((7, 3)),
            layers.Bidirectional(layers.GRU(4, return_sequences=True)),
            layers.Dense(6),
        ]
    )
    result.compile(keras.optimizers.SGD(0.05), LossByScan())
    return fitted(result, reals(9, 7, 3), integers(5, 9, 3, lowest=1))
