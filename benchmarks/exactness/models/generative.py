"""Models that make pictures: autoencoders and adversaries.

Conditional adversaries and diffusion are in `benchmarks/exactness/keras_io`.
"""

import keras
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import images
from benchmarks.exactness.models.fitted import fitted
from benchmarks.exactness.registry import model


def encoder(latent):
    inputs = keras.Input((8, 8, 1))
    x = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(
        inputs
    )
    x = layers.Dense(6, activation="relu")(layers.Flatten()(x))
    outputs = [layers.Dense(latent)(x), layers.Dense(latent)(x)]
    return keras.Model(inputs, outputs)


def decoder(latent):
    return keras.Sequential(
        [
            keras.Input((latent,)),
            layers.Dense(4 * 4 * 3, activation="relu"),
            layers.Reshape((4, 4, 3)),
            layers.Conv2DTranspose(1, 3, strides=2, padding="same"),
        ]
    )


class Sampling(layers.Layer):
    """Draws from a normal distribution of the given mean and logarithm."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(3)

    def call(self, inputs):
        mean, logarithm = inputs
        noise = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * logarithm) * noise


def divergence(mean, logarithm):
    terms = 1 + logarithm - ops.square(mean) - ops.exp(logarithm)
    return ops.mean(ops.sum(-0.5 * terms, axis=1))


class VariationalAutoencoder(keras.Model):
    """With a step and with metrics of its own, as in Keras's example."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.decoder = encoder(2), decoder(2)
        self.sampling = Sampling()
        self.total = keras.metrics.Mean(name="loss")
        self.difference = keras.metrics.Mean(name="difference")

    @property
    def metrics(self):
        return [self.total, self.difference]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, logarithm = self.encoder(data)
            made = self.decoder(self.sampling((mean, logarithm)))
            difference = ops.mean(
                ops.sum(
                    keras.losses.binary_crossentropy(
                        data, made, from_logits=True
                    ),
                    axis=(1, 2),
                )
            )
            loss = difference + divergence(mean, logarithm)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        self.total.update_state(loss)
        self.difference.update_state(difference)
        return {m.name: m.result() for m in self.metrics}


@model("generative", in_suite=True)
def variational_autoencoder_with_its_own_step():
    result = VariationalAutoencoder()
    result.compile(keras.optimizers.Adam(0.01))
    return fitted(result, images(9, 8, 8, 1))


class AddsDivergence(layers.Layer):
    def call(self, inputs):
        self.add_loss(0.1 * divergence(*inputs))
        return inputs


@model("generative")
def variational_autoencoder_with_an_added_loss():
    inputs = keras.Input((8, 8, 1))
    drawn = Sampling()(AddsDivergence()(encoder(2)(inputs)))
    result = keras.Model(inputs, decoder(2)(drawn))
    result.compile(keras.optimizers.Adam(0.01), "mse")
    x = images(9, 8, 8, 1)
    return fitted(result, x, x)


class VectorQuantizer(layers.Layer):
    """Replaces vectors by their nearest of a code book."""

    def build(self, shape):
        self.codes = self.add_weight(shape=(shape[-1], 5))

    def call(self, inputs):
        flat = ops.reshape(inputs, (-1, inputs.shape[-1]))
        far = (
            ops.sum(flat**2, axis=1, keepdims=True)
            + ops.sum(self.codes**2, axis=0)
            - 2 * ops.matmul(flat, self.codes)
        )
        chosen = ops.one_hot(ops.argmin(far, axis=1), 5, dtype=inputs.dtype)
        near = ops.matmul(chosen, ops.transpose(self.codes))
        near = ops.reshape(near, ops.shape(inputs))
        self.add_loss(0.25 * ops.mean((ops.stop_gradient(near) - inputs) ** 2))
        self.add_loss(ops.mean((near - ops.stop_gradient(inputs)) ** 2))
        return inputs + ops.stop_gradient(near - inputs)


@model("generative")
def vector_quantised_autoencoder():
    result = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            layers.Conv2D(3, 1),
            VectorQuantizer(),
            layers.Conv2DTranspose(1, 3, strides=2, padding="same"),
        ]
    )
    result.compile(keras.optimizers.Adam(0.01), "mse")
    x = images(9, 8, 8, 1)
    return fitted(result, x, x)


def judge():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Dropout(0.2, seed=5),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )


def maker(latent):
    return keras.Sequential(
        [
            keras.Input((latent,)),
            layers.Dense(4 * 4 * 3),
            layers.BatchNormalization(),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Reshape((4, 4, 3)),
            layers.Conv2DTranspose(4, 4, strides=2, padding="same"),
            layers.BatchNormalization(),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(1, 3, padding="same", activation="sigmoid"),
        ]
    )


class WassersteinGan(keras.Model):
    """Two networks with an optimizer each.

    The judge's gradient is to have length 1: a gradient of a gradient.
    """

    latent = 4

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.judge, self.maker = judge(), maker(self.latent)
        self.seed_generator = keras.random.SeedGenerator(11)
        self.judge_loss = keras.metrics.Mean(name="judge_loss")
        self.maker_loss = keras.metrics.Mean(name="maker_loss")

    def compile(self, judge_optimizer, maker_optimizer):
        super().compile()
        self.judge_optimizer = judge_optimizer
        self.maker_optimizer = maker_optimizer

    @property
    def metrics(self):
        return [self.judge_loss, self.maker_loss]

    def noise(self, count):
        return keras.random.normal(
            (count, self.latent), seed=self.seed_generator
        )

    def improve(self, optimizer, network, loss_of, metric):
        """A step of one of the networks."""
        with tf.GradientTape() as tape:
            loss = loss_of()
        variables = network.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        metric.update_state(loss)

    def penalty(self, data, made):
        mixed = keras.random.uniform(
            (ops.shape(data)[0], 1, 1, 1), seed=self.seed_generator
        )
        between = data + mixed * (made - data)
        with tf.GradientTape() as tape:
            tape.watch(between)
            judged = self.judge(between, training=True)
        (gradient,) = tape.gradient(judged, [between])
        length = ops.sqrt(ops.sum(ops.square(gradient), axis=(1, 2, 3)))
        return ops.mean((length - 1.0) ** 2)

    def train_step(self, data):
        count = ops.shape(data)[0]
        for _ in range(2):
            made = self.maker(self.noise(count), training=True)
            self.improve(
                self.judge_optimizer,
                self.judge,
                lambda made=made: (
                    ops.mean(self.judge(made, training=True))
                    - ops.mean(self.judge(data, training=True))
                    + 10.0 * self.penalty(data, made)
                ),
                self.judge_loss,
            )
        noise = self.noise(count)
        self.improve(
            self.maker_optimizer,
            self.maker,
            lambda: -ops.mean(self.judge(self.maker(noise, training=True))),
            self.maker_loss,
        )
        return {m.name: m.result() for m in self.metrics}


@model("generative")
def wasserstein_gan_with_a_penalty():
    result = WassersteinGan()
    result.compile(
        keras.optimizers.Adam(1e-3, beta_1=0.5),
        keras.optimizers.Adam(1e-3, beta_1=0.5),
    )
    return fitted(result, images(9, 8, 8, 1))
