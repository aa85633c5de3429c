"""Programs after keras.io's examples of learning without labels."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import images, integers
from benchmarks.exactness.keras_io.representation import (
    encoder,
    take_step,
    unit,
)
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example


def head(units=4):
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(units, activation="relu"),
            layers.BatchNormalization(),
            layers.Dense(6),
        ]
    )


def augmenter():
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.RandomFlip("horizontal"),
            layers.RandomTranslation(0.2, 0.2, fill_mode="nearest"),
        ]
    )


@example("examples/vision/simsiam")
def simsiam(run):
    class SimSiam(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder, self.predictor = encoder(), head()
            self.loss_tracker = keras.metrics.Mean(name="loss")

        @property
        def metrics(self):
            return [self.loss_tracker]

        def train_step(self, data):
            one, two = data
            with tf.GradientTape() as tape:
                z1, z2 = self.encoder(one), self.encoder(two)
                p1, p2 = self.predictor(z1), self.predictor(z2)
                loss = self.similar(p1, z2) / 2 + self.similar(p2, z1) / 2
            variables = (
                self.encoder.trainable_variables
                + self.predictor.trainable_variables
            )
            take_step(self, tape, loss, variables)
            self.loss_tracker.update_state(loss)
            return {"loss": self.loss_tracker.result()}

        def similar(self, p, z):
            z = unit(ops.stop_gradient(z))
            return -ops.mean(ops.sum(unit(p) * z, axis=1))

    views = tuple(images(ROWS, 8, 8, 3, seed=seed) for seed in range(2))
    with run.scope():
        model = SimSiam()
        schedule = keras.optimizers.schedules.CosineDecay(0.03, 8)
        model.compile(keras.optimizers.SGD(schedule, momentum=0.6))
    early = keras.callbacks.EarlyStopping(
        "loss", patience=5, restore_best_weights=True, min_delta=1e-9
    )
    run.fit(
        model,
        tf.data.Dataset.from_tensor_slices(views).batch(6),
        callbacks=[early],
    )


@example("examples/vision/nnclr")
def nnclr(run):
    """Positives are nearest neighbours in a queue of earlier features."""

    class Nnclr(keras.Model):
        def __init__(self):
            super().__init__()
            self.augment = augmenter()
            self.encoder, self.projection = encoder(), head()
            self.probe = keras.Sequential([keras.Input((6,)), layers.Dense(3)])
            start = np.random.default_rng(0).normal(size=(20, 6))
            start /= np.linalg.norm(start, axis=1, keepdims=True)
            self.queue = self.add_weight(
                shape=(20, 6),
                initializer=lambda shape, dtype: ops.cast(start, dtype),
                trainable=False,
            )
            self.probe_accuracy = keras.metrics.SparseCategoricalAccuracy()

        def compile(self, contrastive_optimizer, probe_optimizer):
            super().compile()
            self.contrastive_optimizer = contrastive_optimizer
            self.probe_optimizer = probe_optimizer

        def nearest(self, z):
            similar = ops.matmul(z, ops.transpose(self.queue.value))
            found = ops.take(self.queue.value, ops.argmax(similar, 1), axis=0)
            return z + ops.stop_gradient(found - z)

        def contrast(self, one, two):
            one, two = unit(one), unit(two)
            a = ops.matmul(self.nearest(one), ops.transpose(two)) / 0.1
            b = ops.matmul(self.nearest(two), ops.transpose(one)) / 0.1
            labels = ops.arange(ops.shape(one)[0])
            loss = keras.losses.sparse_categorical_crossentropy(
                ops.concatenate([labels] * 4, axis=0),
                ops.concatenate(
                    [a, ops.transpose(a), b, ops.transpose(b)], axis=0
                ),
                from_logits=True,
            )
            self.queue.assign(
                ops.concatenate(
                    [one, self.queue.value[: -ops.shape(one)[0]]], 0
                )
            )
            return loss

        def train_step(self, data):
            x, y = data
            one, two = (
                self.augment(x, training=True),
                self.augment(x, training=True),
            )
            with tf.GradientTape() as tape:
                loss = self.contrast(
                    self.projection(self.encoder(one)),
                    self.projection(self.encoder(two)),
                )
            variables = (
                self.encoder.trainable_weights
                + self.projection.trainable_weights
            )
            self.contrastive_optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables)
            )
            with tf.GradientTape() as tape:
                logits = self.probe(self.encoder(x))
                probe_loss = ops.mean(
                    keras.losses.sparse_categorical_crossentropy(
                        y, logits, from_logits=True
                    )
                )
            variables = self.probe.trainable_weights
            self.probe_optimizer.apply_gradients(
                zip(tape.gradient(probe_loss, variables), variables)
            )
            self.probe_accuracy.update_state(y, logits)
            return {
                "loss": ops.mean(loss),
                "probe_loss": probe_loss,
                "probe_accuracy": self.probe_accuracy.result(),
            }

    with run.scope():
        model = Nnclr()
        model.compile(keras.optimizers.Adam(1e-3), keras.optimizers.Adam(1e-3))
    run.fit(model, images(ROWS, 8, 8, 3), integers(3, ROWS))
