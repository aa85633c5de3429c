"""Programs after public reports: layers that failed on several devices."""

import keras
import numpy as np
from keras import layers, ops

from benchmarks.exactness.data import images, integers, reals
from benchmarks.exactness.keras_io.run import BATCH_SIZE, ROWS
from benchmarks.exactness.registry import report


@report("keras-team/keras", 8397)
def stateful_recurrence(run):
    """Reported: shapes don't fit, since the batch's size is part of a state."""
    x, y = reals(24, 5, 3), reals(24, 5, 2)
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input(batch_shape=(BATCH_SIZE, 5, 3)),
                layers.GRU(4, return_sequences=True, stateful=True),
                layers.GRU(4, return_sequences=True, stateful=True),
                layers.Dense(2),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse")
    run.fit(model, x, y, shuffle=False)
    run.keep(after=model.predict(x, batch_size=BATCH_SIZE, verbose=0))


@report("tensorflow/tensorflow", 33072)
def stateful_convolutional_recurrence(run):
    """Reported: training fails, unless `stateful` is false."""
    x, y = images(12, 3, 6, 6, 1), reals(12, 4)
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input(batch_shape=(BATCH_SIZE, 3, 6, 6, 1)),
                layers.ConvLSTM2D(2, 3, stateful=True),
                layers.Flatten(),
                layers.Dense(4),
            ]
        )
        model.compile(keras.optimizers.SGD(0.05), "mse")
    run.fit(model, x, y, shuffle=False)


@report("keras-team/keras", 10830)
def recurrence_from_a_given_state(run):
    """Reported: a replica's rows meet the whole batch's initial state."""
    with run.scope():
        inputs, state = keras.Input((4, 3)), keras.Input((3,))
        heard = layers.SimpleRNN(3, return_sequences=True)(
            inputs, initial_state=state
        )
        model = keras.Model([inputs, state], heard)
        model.compile(keras.optimizers.Adam(0.01), "mse")
    run.fit(model, [reals(ROWS, 4, 3), reals(ROWS, 3)], reals(ROWS, 4, 3))


@report("keras-team/keras", 8976)
def dropout_within_a_recurrence(run):
    """Reported: the mask has the rows of the whole batch."""
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((6, 4)),
                layers.LSTM(5, dropout=0.2, recurrent_dropout=0.2),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse")
    run.fit(model, reals(ROWS, 6, 4), reals(ROWS, 5))


@report("keras-team/keras", 20611)
def dropout_between_dense_layers(run):
    """Reported: such a model can't even be built in a scope."""
    with run.scope():
        model = keras.Sequential(
            [
                layers.Dense(8, activation="gelu"),
                layers.Dropout(0.2),
                layers.Dense(4),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse")
    run.fit(model, reals(ROWS, 5), reals(ROWS, 4))


@report("keras-team/keras", 11858)
def normalisation_of_an_uneven_batch(run):
    """Reported: NaN in the weights if the rows aren't a multiple of a batch."""
    x, y = images(25, 8, 8, 1), integers(2, 25, 1)
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.Conv2D(3, 3, use_bias=False),
                layers.BatchNormalization(),
                layers.Activation("relu"),
                layers.GlobalAveragePooling2D(),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile("adadelta", "binary_crossentropy", metrics=["accuracy"])
    run.fit(model, x, y, validation_data=(x, y), batch_size=8)
    run.keep(after=model.predict(x, verbose=0))


@report("tensorflow/tensorflow", 7439)
def variance_over_all_replicas(run):
    """Reported: batch normalisation sees the rows of one replica only."""
    x = reals(ROWS, 5) * np.arange(1, 6) + 3.0
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((5,)),
                layers.BatchNormalization(momentum=0.5),
                layers.Dense(2),
                layers.BatchNormalization(synchronized=True),
            ]
        )
        model.compile(keras.optimizers.SGD(0.1), "mse")
    run.fit(model, x, reals(ROWS, 2))


@report("tensorflow/tensorflow", 37834)
def spectral_normalisation(run):
    """Reported: a kernel can't be assigned by the replicas."""
    with run.scope():
        inputs = keras.Input((8, 8, 3))
        x = layers.SpectralNormalization(layers.Conv2D(5, 3))(inputs)
        x = layers.GlobalAveragePooling2D()(ops.relu(x))
        model = keras.Model(
            inputs, layers.SpectralNormalization(layers.Dense(1))(x)
        )
        model.compile(keras.optimizers.SGD(0.05), "mse")
    run.fit(model, images(ROWS, 8, 8, 3), reals(ROWS, 1))


@report("tensorflow/tensorflow", 33809)
def gated_recurrence_in_two_directions(run):
    """Reported: learns much worse than on one device."""
    with run.scope():
        inputs = keras.Input((6, 4))
        x = layers.Bidirectional(layers.GRU(4, return_sequences=True))(inputs)
        x = layers.BatchNormalization()(x)
        x = layers.Bidirectional(layers.GRU(3))(x)
        model = keras.Model(inputs, layers.Dense(3)(x))
        model.compile(
            keras.optimizers.Adam(0.02),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    run.fit(model, reals(ROWS, 6, 4), integers(3, ROWS))
