"""Programs after keras.io's generative examples."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import images, integers, reals
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example


def judge(channels):
    return keras.Sequential(
        [
            keras.Input((8, 8, channels)),
            layers.Conv2D(4, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.GlobalMaxPooling2D(),
            layers.Dense(1),
        ]
    )


def maker(latent, channels=1):
    return keras.Sequential(
        [
            keras.Input((latent,)),
            layers.Dense(4 * 4 * 3),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Reshape((4, 4, 3)),
            layers.Conv2DTranspose(channels, 4, strides=2, padding="same"),
            layers.Activation("sigmoid"),
        ]
    )


def improve(optimizer, variables, loss_of):
    with tf.GradientTape() as tape:
        loss = loss_of()
    optimizer.apply(tape.gradient(loss, variables), variables)
    return loss


def cross_entropy():
    return keras.losses.BinaryCrossentropy(from_logits=True)


class TwoOptimizers(keras.Model):
    def compile(self, judge_optimizer, maker_optimizer):
        super().compile()
        self.judge_optimizer = judge_optimizer
        self.maker_optimizer = maker_optimizer


@example("examples/generative/conditional_gan")
def conditional_gan(run):
    """Labels are channels of the judge's pictures, and part of the noise."""

    class Conditional(TwoOptimizers):
        def __init__(self):
            super().__init__()
            self.judge, self.maker = judge(4), maker(7)
            self.seed_generator = keras.random.SeedGenerator(1337)
            self.trackers = [
                keras.metrics.Mean(name="maker"),
                keras.metrics.Mean(name="judge"),
            ]

        @property
        def metrics(self):
            return self.trackers

        def train_step(self, data):
            real, labels = data
            count = ops.shape(real)[0]
            planes = ops.repeat(labels[:, :, None, None], 64)
            planes = ops.reshape(planes, (-1, 8, 8, 3))

            def noise():
                drawn = keras.random.normal(
                    (count, 4), seed=self.seed_generator
                )
                return ops.concatenate([drawn, labels], axis=1)

            made = ops.concatenate([self.maker(noise()), planes], -1)
            both = ops.concatenate(
                [made, ops.concatenate([real, planes], -1)], axis=0
            )
            wanted = ops.concatenate(
                [ops.ones((count, 1)), ops.zeros((count, 1))], axis=0
            )
            judged = improve(
                self.judge_optimizer,
                self.judge.trainable_weights,
                lambda: cross_entropy()(wanted, self.judge(both)),
            )
            drawn = noise()
            fooled = improve(
                self.maker_optimizer,
                self.maker.trainable_weights,
                lambda: cross_entropy()(
                    ops.zeros((count, 1)),
                    self.judge(
                        ops.concatenate([self.maker(drawn), planes], -1)
                    ),
                ),
            )
            self.trackers[0].update_state(fooled)
            self.trackers[1].update_state(judged)
            return {m.name: m.result() for m in self.metrics}

    labels = np.eye(3)[integers(3, ROWS)]
    with run.scope():
        model = Conditional()
        model.compile(keras.optimizers.Adam(1e-3), keras.optimizers.Adam(1e-3))
    run.fit(model, images(ROWS, 8, 8, 1), labels)


@example("examples/generative/cyclegan")
def cyclegan(run):
    """Four networks, four optimizers, one persistent tape."""

    def translator():
        inputs = keras.Input((8, 8, 3))
        x = layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
        x = layers.add([x, layers.Conv2D(4, 3, padding="same")(x)])
        return keras.Model(inputs, layers.Conv2D(3, 1, activation="tanh")(x))

    class CycleGan(keras.Model):
        def __init__(self):
            super().__init__()
            self.g, self.f = translator(), translator()
            self.x, self.y = judge(3), judge(3)

        def compile(self, optimizers):
            super().compile()
            self.optimizers = optimizers
            self.apart = keras.losses.MeanAbsoluteError()
            self.judged = keras.losses.MeanSquaredError()

        def train_step(self, data):
            real_x, real_y = data
            with tf.GradientTape(persistent=True) as tape:
                fake_y, fake_x = self.g(real_x), self.f(real_y)
                cycled = self.apart(real_x, self.f(fake_y)) + self.apart(
                    real_y, self.g(fake_x)
                )
                jx, jy = self.x(real_x), self.y(real_y)
                fx, fy = self.x(fake_x), self.y(fake_y)
                same_g = self.apart(real_y, self.g(real_y)) * 5.0
                same_f = self.apart(real_x, self.f(real_x)) * 5.0
                losses = {
                    "g": self.judged(ops.ones_like(fy), fy)
                    + 10 * cycled
                    + same_g,
                    "f": self.judged(ops.ones_like(fx), fx)
                    + 10 * cycled
                    + same_f,
                    "x": self.of_judge(jx, fx),
                    "y": self.of_judge(jy, fy),
                }
            for name, loss in losses.items():
                variables = getattr(self, name).trainable_variables
                gradients = tape.gradient(loss, variables)
                self.optimizers[name].apply_gradients(zip(gradients, variables))
            return losses

        def of_judge(self, real, fake):
            return 0.5 * (
                self.judged(ops.ones_like(real), real)
                + self.judged(ops.zeros_like(fake), fake)
            )

    data = tuple(reals(ROWS, 8, 8, 3, seed=seed) for seed in range(2))
    with run.scope():
        model = CycleGan()
        model.compile(
            {n: keras.optimizers.Adam(1e-3, beta_1=0.5) for n in "gfxy"}
        )
    run.fit(model, tf.data.Dataset.from_tensor_slices(data).batch(6), epochs=1)
