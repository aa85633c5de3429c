"""Losses over pairs of rows: every row is compared with all of the batch."""

import keras
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import images, integers, reals, sentences
from benchmarks.exactness.models.fitted import fitted
from benchmarks.exactness.registry import model


def picture_tower(units=4):
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, strides=2, activation="relu"),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(units),
        ]
    )


def unit(x):
    return ops.normalize(x, axis=-1)


class SimClr(keras.Model):
    """Two views of each picture find each other among all of the batch."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.augment = keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layers.RandomFlip("horizontal", seed=1),
                layers.RandomTranslation(0.2, 0.2, seed=2),
                layers.RandomBrightness(0.3, value_range=(0, 1), seed=3),
                layers.RandomContrast(0.3, value_range=(0, 1), seed=4),
            ]
        )
        self.tower = picture_tower()
        self.head = keras.Sequential(
            [keras.Input((4,)), layers.Dense(4, "relu"), layers.Dense(3)]
        )
        self.accuracy = keras.metrics.SparseCategoricalAccuracy()

    def call(self, x, training=False):
        return unit(self.head(self.tower(x, training=training)))

    def contrast(self, one, two):
        similar = ops.matmul(one, ops.transpose(two)) / 0.1
        labels = ops.arange(ops.shape(one)[0])
        self.accuracy.update_state(labels, similar)
        self.accuracy.update_state(labels, ops.transpose(similar))
        return ops.mean(
            keras.losses.sparse_categorical_crossentropy(
                ops.concatenate([labels, labels], axis=0),
                ops.concatenate([similar, ops.transpose(similar)], axis=0),
                from_logits=True,
            )
        )

    def train_step(self, data):
        one = self.augment(data, training=True)
        two = self.augment(data, training=True)
        with tf.GradientTape() as tape:
            loss = self.contrast(
                self(one, training=True), self(two, training=True)
            )
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss, "accuracy": self.accuracy.result()}


@model("contrastive")
def simclr():
    result = SimClr()
    result.compile(keras.optimizers.Adam(0.01))
    return fitted(result, images(9, 8, 8, 3))


class Clip(keras.Model):
    """Pictures and sentences find each other; the temperature is learned."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.pictures = picture_tower()
        self.texts = keras.Sequential(
            [
                keras.Input((5,), dtype="int32"),
                layers.Embedding(9, 4, mask_zero=True),
                layers.GlobalAveragePooling1D(),
                layers.Dense(4),
            ]
        )
        self.scale = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(2.0), name="scale"
        )

    def call(self, inputs, training=False):
        pictures = unit(self.pictures(inputs["picture"], training=training))
        texts = unit(self.texts(inputs["text"], training=training))
        return ops.exp(self.scale) * ops.matmul(pictures, ops.transpose(texts))

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        labels = ops.arange(ops.shape(y_pred)[0])
        return 0.5 * sum(
            ops.mean(
                keras.losses.sparse_categorical_crossentropy(
                    labels, logits, from_logits=True
                )
            )
            for logits in (y_pred, ops.transpose(y_pred))
        )


@model("contrastive", in_suite=True, evaluates=True)
def clip():
    result = Clip()
    result.compile(keras.optimizers.AdamW(0.01))
    return fitted(
        result, {"picture": images(9, 8, 8, 3), "text": sentences(9, 9, 5)}
    )


class Distances(layers.Layer):
    """Distances of the anchor from what is alike and from what is not."""

    def call(self, anchor, positive, negative):
        near = ops.sum(ops.square(anchor - positive), -1)
        far = ops.sum(ops.square(anchor - negative), -1)
        return ops.stack([near, far], axis=-1)


@model("contrastive")
def triplets():
    tower = picture_tower()
    tower.layers[1].trainable = False
    inputs = [keras.Input((8, 8, 3)) for _ in range(3)]
    outputs = Distances()(*map(tower, inputs))
    result = keras.Model(inputs, outputs)

    def margin(y_true, y_pred):
        return ops.maximum(y_pred[:, 0] - y_pred[:, 1] + 0.5, 0.0)

    result.compile(keras.optimizers.Adam(0.01), margin)
    pictures = [images(9, 8, 8, 3, seed=seed) for seed in range(3)]
    return fitted(result, pictures, reals(9))


@model("contrastive")
def hardest_triplets_of_the_batch():
    """Of all rows, the nearest of another class and the farthest of its own."""

    def hardest(y_true, y_pred):
        y_true = ops.reshape(y_true, (-1, 1))
        squares = ops.sum(y_pred**2, axis=1, keepdims=True)
        far = squares + ops.transpose(squares)
        far = far - 2 * ops.matmul(y_pred, ops.transpose(y_pred))
        alike = ops.equal(y_true, ops.transpose(y_true))
        farthest = ops.max(ops.where(alike, far, 0.0), axis=1)
        nearest = ops.min(ops.where(alike, 1e6, far), axis=1)
        return ops.maximum(farthest - nearest + 0.5, 0.0)

    tower = picture_tower()
    tower.compile(keras.optimizers.Adam(0.01), hardest)
    return fitted(tower, images(9, 8, 8, 3), integers(3, 9))


@model("contrastive")
def barlow_twins():
    """Features of two views correlate each with itself only."""

    def loss(y_true, y_pred):
        one, two = ops.split(y_pred, 2, axis=-1)
        one = (one - ops.mean(one, axis=0)) / (ops.std(one, axis=0) + 0.1)
        two = (two - ops.mean(two, axis=0)) / (ops.std(two, axis=0) + 0.1)
        count = ops.cast(ops.shape(one)[0], one.dtype)
        crossed = ops.matmul(ops.transpose(one), two) / count
        return ops.mean((crossed - ops.eye(3, dtype=one.dtype)) ** 2)

    inputs = keras.Input((8, 8, 3))
    tower = picture_tower(3)
    views = layers.GaussianNoise(0.2, seed=2)(inputs)
    outputs = layers.Concatenate()([tower(inputs), tower(views)])
    result = keras.Model(inputs, outputs)
    result.compile(keras.optimizers.SGD(0.05), loss)
    return fitted(result, images(9, 8, 8, 3), reals(9, 6))
