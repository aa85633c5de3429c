"""Programs after keras.io's examples of time series and sound."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import reals, sentences
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example


@example("examples/timeseries/timeseries_weather_forecasting")
def weather_forecast(run):
    """Windows of a series; the best weights are kept in a file."""
    series = np.cumsum(reals(59, 3), axis=0) / 10
    windows = keras.utils.timeseries_dataset_from_array(
        series[:-6], series[6:, :1], sequence_length=6, batch_size=6
    )
    with run.scope():
        inputs = keras.Input((6, 3))
        model = keras.Model(inputs, layers.Dense(1)(layers.LSTM(5)(inputs)))
        model.compile(keras.optimizers.Adam(0.01), "mse")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "best.weights.h5")
        save = keras.callbacks.ModelCheckpoint(
            path, save_weights_only=True, save_best_only=True
        )
        stop = keras.callbacks.EarlyStopping(
            "val_loss", min_delta=0, patience=5
        )
        run.fit(model, windows, validation_data=windows, callbacks=[stop, save])
        model.load_weights(path)
    run.keep(forecast=model.predict(windows, verbose=0))


@example("examples/timeseries/timeseries_anomaly_detection")
def anomaly_autoencoder(run):
    """Windows that it rebuilds worse than any of training are anomalies."""
    x = np.sin(np.arange(ROWS)[:, None] + np.arange(8) / 2)[..., None]
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 1)),
                layers.Conv1D(
                    4, 3, padding="same", strides=2, activation="relu"
                ),
                layers.Dropout(0.2),
                layers.Conv1D(
                    3, 3, padding="same", strides=2, activation="relu"
                ),
                layers.Conv1DTranspose(3, 3, padding="same", strides=2),
                layers.Conv1DTranspose(1, 3, padding="same", strides=2),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse")
    slower = keras.callbacks.ReduceLROnPlateau(
        "val_loss", patience=1, factor=0.5, min_delta=10.0
    )
    run.fit(model, x, x, epochs=4, validation_split=0.2, callbacks=[slower])
    apart = np.mean(np.abs(model.predict(x, verbose=0) - x), axis=1)
    run.keep(
        threshold=apart.max(),
        rate=ops.convert_to_numpy(model.optimizer.learning_rate),
    )


@example("examples/timeseries/timeseries_traffic_forecasting")
def traffic_graph_lstm(run):
    """Roads hear their neighbours in each time step; an LSTM follows."""
    roads, units = 4, 3
    edges = ([0, 0, 1, 2, 3, 3], [1, 2, 0, 3, 0, 2])

    class Graph(layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(shape[-1], units))

        def call(self, x):
            neighbours = ops.take(x, edges[1], axis=0)
            sums = tf.math.unsorted_segment_mean(neighbours, edges[0], roads)
            own = ops.matmul(x, self.kernel)
            return ops.relu(
                ops.concatenate([own, ops.matmul(sums, self.kernel)], axis=-1)
            )

    class GraphLstm(layers.Layer):
        def __init__(self):
            super().__init__()
            self.graph, self.lstm = Graph(), layers.LSTM(4)
            self.dense = layers.Dense(2)

        def call(self, x):
            x = self.graph(ops.transpose(x, (2, 0, 1, 3)))
            count, times = ops.shape(x)[1], x.shape[2]
            x = ops.reshape(x, (roads * count, times, 2 * units))
            x = self.dense(self.lstm(x))
            return ops.transpose(ops.reshape(x, (roads, count, 2)), (1, 2, 0))

    with run.scope():
        inputs = keras.Input((5, roads, 1))
        model = keras.Model(inputs, GraphLstm()(inputs))
        model.compile(keras.optimizers.RMSprop(2e-3), "mse")
    x, y = reals(ROWS, 5, roads, 1), reals(ROWS, 2, roads, seed=1)
    run.fit(model, x, y, validation_data=(x, y))


@example("examples/audio/transformer_asr")
def speech_transformer(run):
    """Sounds to letters; label smoothing, masks and a schedule of one's own."""

    class Schedule(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            step = ops.cast(step, "float32")
            return 0.01 * ops.minimum((step + 1) / 4, 1.0) / (1 + step / 10)

    class Transformer(keras.Model):
        def __init__(self):
            super().__init__()
            self.hear = keras.Sequential(
                [
                    keras.Input((12, 3)),
                    layers.Conv1D(6, 3, strides=2, activation="relu"),
                    layers.Conv1D(6, 3, padding="same", activation="relu"),
                ]
            )
            self.letters, self.places = (
                layers.Embedding(7, 6),
                layers.Embedding(5, 6),
            )
            self.own = layers.MultiHeadAttention(2, 3)
            self.other = layers.MultiHeadAttention(2, 3)
            self.normal = layers.LayerNormalization(epsilon=1e-6)
            self.out = layers.Dense(7)
            self.loss_metric = keras.metrics.Mean(name="loss")

        @property
        def metrics(self):
            return [self.loss_metric]

        def call(self, inputs):
            sound, letters = inputs
            heard = self.hear(sound)
            x = self.letters(letters) + self.places(ops.arange(5))
            x = x + self.own(x, x, use_causal_mask=True)
            return self.out(self.normal(x + self.other(x, heard)))

        def train_step(self, batch):
            sound, letters = batch["source"], batch["target"]
            with tf.GradientTape() as tape:
                scores = self([sound, letters[:, :-1]])
                wanted = ops.one_hot(letters[:, 1:], 7)
                mask = ops.not_equal(letters[:, 1:], 0)
                loss = self.compute_loss(
                    None, wanted, scores, sample_weight=mask
                )
            variables = self.trainable_variables
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables)
            )
            self.loss_metric.update_state(loss)
            return {"loss": self.loss_metric.result()}

    data = {"source": reals(ROWS, 12, 3), "target": sentences(7, ROWS, 6)}
    with run.scope():
        model = Transformer()
        model.compile(
            keras.optimizers.Adam(Schedule()),
            keras.losses.CategoricalCrossentropy(
                from_logits=True, label_smoothing=0.1
            ),
        )
    run.fit(model, tf.data.Dataset.from_tensor_slices(data).batch(6))
