"""Programs after keras.io's examples of diffusion, pixels and flows."""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import images, reals
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example


def denoiser():
    noisy, variance = keras.Input((8, 8, 3)), keras.Input((1, 1, 1))
    waves = layers.Lambda(
        lambda v: ops.concatenate([ops.sin(6.0 * v), ops.cos(6.0 * v)], 3)
    )(variance)
    waves = layers.UpSampling2D(8, interpolation="nearest")(waves)
    x = layers.Concatenate()([layers.Conv2D(4, 1)(noisy), waves])
    for _ in range(2):
        before = layers.Conv2D(4, 1)(x)
        x = layers.BatchNormalization(center=False, scale=False)(before)
        x = layers.Conv2D(4, 3, padding="same", activation="swish")(x)
        x = layers.Add()([x, before])
    out = layers.Conv2D(3, 1, kernel_initializer="zeros")(x)
    return keras.Model([noisy, variance], out)


@example("examples/generative/ddim")
def ddim(run):
    """Noise and pictures are both predicted; weights are averaged."""

    class Ddim(keras.Model):
        def __init__(self):
            super().__init__()
            self.normalizer = layers.Normalization()
            self.network = denoiser()
            self.average = denoiser()
            self.average.set_weights(self.network.get_weights())
            self.seed_generator = keras.random.SeedGenerator(5)

        def compile(self, **kwargs):
            super().compile(**kwargs)
            self.noise_tracker = keras.metrics.Mean(name="n_loss")
            self.image_tracker = keras.metrics.Mean(name="i_loss")

        @property
        def metrics(self):
            return [self.noise_tracker, self.image_tracker]

        def rates(self, times):
            first, last = math.acos(0.95), math.acos(0.02)
            angles = first + times * (last - first)
            return ops.sin(angles), ops.cos(angles)

        def losses_of(self, data, network, training):
            x = self.normalizer(data, training=True)
            count = ops.shape(x)[0]
            noise = keras.random.normal(ops.shape(x), seed=self.seed_generator)
            times = keras.random.uniform(
                (count, 1, 1, 1), seed=self.seed_generator
            )
            loud, clear = self.rates(times)
            noisy = clear * x + loud * noise
            guessed = network([noisy, loud**2], training=training)
            pictures = (noisy - loud * guessed) / clear
            return self.loss(noise, guessed), self.loss(x, pictures)

        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss, image_loss = self.losses_of(data, self.network, True)
            variables = self.network.trainable_weights
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables)
            )
            self.noise_tracker.update_state(loss)
            self.image_tracker.update_state(image_loss)
            for own, average in zip(self.network.weights, self.average.weights):
                average.assign(0.9 * average + 0.1 * own)
            return {m.name: m.result() for m in self.metrics}

        def test_step(self, data):
            loss, image_loss = self.losses_of(data, self.average, False)
            self.noise_tracker.update_state(loss)
            self.image_tracker.update_state(image_loss)
            return {m.name: m.result() for m in self.metrics}

    x = images(ROWS, 8, 8, 3)
    with run.scope():
        model = Ddim()
        model.normalizer.adapt(x)
        model.compile(
            optimizer=keras.optimizers.AdamW(1e-3, weight_decay=1e-4),
            loss=keras.losses.MeanAbsoluteError(),
        )
    run.fit(model, x, validation_data=(x,))


@example("examples/generative/pixelcnn")
def pixel_cnn(run):
    """Convolutions see pixels above and to the left only."""

    class Masked(layers.Layer):
        def __init__(self, kind, **settings):
            super().__init__()
            self.kind, self.conv = kind, layers.Conv2D(**settings)

        def build(self, shape):
            self.conv.build(shape)
            height, width, *_ = self.conv.kernel.shape
            mask = np.zeros(self.conv.kernel.shape)
            mask[: height // 2] = 1.0
            mask[height // 2, : width // 2 + (self.kind == "B")] = 1.0
            self.mask = mask

        def call(self, x):
            self.conv.kernel.assign(self.conv.kernel * self.mask)
            return self.conv(x)

    with run.scope():
        inputs = keras.Input((8, 8, 1))
        x = Masked("A", filters=4, kernel_size=5, padding="same")(inputs)
        for _ in range(2):
            hidden = layers.Conv2D(4, 1, activation="relu")(x)
            hidden = Masked("B", filters=4, kernel_size=3, padding="same")(
                hidden
            )
            x = layers.add([x, layers.ReLU()(hidden)])
        x = layers.Conv2D(1, 1, activation="sigmoid")(x)
        model = keras.Model(inputs, x)
        model.compile(keras.optimizers.Adam(5e-4), "binary_crossentropy")
    x = (images(ROWS, 8, 8, 1) > 0.5).astype("float64")
    run.fit(model, x, x, validation_split=0.2)


@example("examples/generative/real_nvp")
def real_nvp(run):
    """Density of points by invertible layers with masks."""

    def coupling():
        inputs = keras.Input((2,))
        hidden = layers.Dense(6, activation="relu", kernel_regularizer="l2")
        x = hidden(inputs)
        scale = layers.Dense(2, activation="tanh", kernel_regularizer="l2")(x)
        return keras.Model(inputs, [scale, layers.Dense(2)(x)])

    class RealNvp(keras.Model):
        def __init__(self):
            super().__init__()
            self.masks = np.array([[0, 1], [1, 0]] * 2, "float64")
            self.couplings = [coupling() for _ in range(4)]
            self.loss_tracker = keras.metrics.Mean(name="loss")

        @property
        def metrics(self):
            return [self.loss_tracker]

        def call(self, x, training=True):
            logarithm = 0.0
            for mask, layer in zip(self.masks[::-1], self.couplings[::-1]):
                scale, shift = layer(x * mask)
                scale, shift = scale * (1 - mask), shift * (1 - mask)
                x = (1 - mask) * (x * ops.exp(-scale) - ops.exp(-scale) * shift)
                x = x + mask * x
                logarithm = logarithm - ops.sum(scale, 1)
            return x, logarithm

        def log_loss(self, data):
            y, logarithm = self(data)
            likely = -0.5 * ops.sum(y**2, 1) - math.log(2 * math.pi) + logarithm
            return -ops.mean(likely)

        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = self.log_loss(data)
            variables = self.trainable_variables
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables)
            )
            self.loss_tracker.update_state(loss)
            return {"loss": self.loss_tracker.result()}

        def test_step(self, data):
            self.loss_tracker.update_state(self.log_loss(data))
            return {"loss": self.loss_tracker.result()}

    with run.scope():
        model = RealNvp()
        model.compile(keras.optimizers.Adam(1e-3))
    run.fit(model, reals(ROWS, 2), validation_split=0.2)
