"""Programs after keras.io's computer vision examples: classifiers."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import images, integers
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example

CLASSES = 3


def labelled(size=8, channels=3):
    return images(ROWS, size, size, channels), integers(CLASSES, ROWS)


def class_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def classify(run, make, optimizer=None, size=8):
    """Compiles, trains and evaluates a classifier of small pictures."""
    x, y = labelled(size)
    with run.scope():
        model = make()
        model.compile(
            optimizer() if optimizer else "adam",
            class_loss(),
            metrics=["accuracy"],
        )
    run.fit(model, x, y, validation_data=(x[:8], y[:8]))
    run.keep(probabilities=model.predict(x, verbose=0))


def patches(x, size, units):
    """Embedded patches of pictures as a sequence."""
    x = layers.Conv2D(units, size, strides=size)(x)
    return layers.Reshape((-1, units))(x)


@example("examples/vision/mnist_convnet", in_suite=True)
def mnist_convnet(run):
    x = integers(256, ROWS, 10, 10, 1).astype("float64") / 255
    y = keras.utils.to_categorical(integers(CLASSES, ROWS), CLASSES)
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((10, 10, 1)),
                layers.Conv2D(4, 3, activation="relu"),
                layers.MaxPooling2D(2),
                layers.Conv2D(6, 3, activation="relu"),
                layers.Flatten(),
                layers.Dropout(0.5),
                layers.Dense(CLASSES, activation="softmax"),
            ]
        )
        model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    run.fit(model, x, y, validation_split=0.2)
    run.keep(score=model.evaluate(x, y, verbose=0))


@example("examples/vision/image_classification_from_scratch")
def mini_xception(run):
    def make():
        inputs = keras.Input((16, 16, 3))
        x = layers.RandomFlip("horizontal")(inputs)
        x = layers.Rescaling(2.0, offset=-1.0)(x)
        x = layers.Conv2D(4, 3, strides=2, padding="same")(x)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
        for units in (6, 8):
            before = x
            x = layers.SeparableConv2D(units, 3, padding="same")(x)
            x = layers.Activation("relu")(layers.BatchNormalization()(x))
            x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
            skipped = layers.Conv2D(units, 1, strides=2, padding="same")
            x = layers.add([x, skipped(before)])
        x = layers.Dropout(0.25)(layers.GlobalAveragePooling2D()(x))
        return keras.Model(inputs, layers.Dense(CLASSES)(x))

    classify(run, make, lambda: keras.optimizers.Adam(3e-3), size=16)


@example("examples/vision/mlp_image_classification")
def mlp_mixer(run):
    class Mixer(layers.Layer):
        def __init__(self, tokens, units):
            super().__init__()
            self.over_tokens = keras.Sequential(
                [layers.Dense(tokens, activation="gelu"), layers.Dense(tokens)]
            )
            self.over_channels = keras.Sequential(
                [layers.Dense(units, activation="gelu"), layers.Dense(units)]
            )
            self.normalize = layers.LayerNormalization(epsilon=1e-6)

        def call(self, inputs):
            x = ops.transpose(self.normalize(inputs), (0, 2, 1))
            x = ops.transpose(self.over_tokens(x), (0, 2, 1)) + inputs
            return x + self.over_channels(self.normalize(x))

    def make():
        inputs = keras.Input((8, 8, 3))
        x = Mixer(4, 6)(patches(inputs, 4, 6))
        x = layers.GlobalAveragePooling1D()(Mixer(4, 6)(x))
        return keras.Model(inputs, layers.Dense(CLASSES)(x))

    classify(run, make, lambda: keras.optimizers.AdamW(5e-3, weight_decay=1e-4))


@example("examples/vision/cct")
def compact_convolutional_transformer(run):
    class StochasticDepth(layers.Layer):
        def __init__(self, rate):
            super().__init__()
            self.rate = rate
            self.seed_generator = keras.random.SeedGenerator(1337)

        def call(self, x, training=False):
            if not training:
                return x
            shape = (ops.shape(x)[0], 1, 1)
            kept = keras.random.uniform(shape, seed=self.seed_generator)
            return x / (1 - self.rate) * ops.floor(1 - self.rate + kept)

    class SequencePooling(layers.Layer):
        def build(self, _):
            self.attention = layers.Dense(1)

        def call(self, x):
            weights = ops.transpose(
                ops.softmax(self.attention(x), 1), (0, 2, 1)
            )
            return ops.squeeze(ops.matmul(weights, x), -2)

    def make():
        inputs = keras.Input((8, 8, 3))
        x = layers.Conv2D(6, 3, padding="same", activation="relu")(inputs)
        x = layers.MaxPooling2D(3, 2, padding="same")(x)
        x = layers.Reshape((-1, 6))(x)
        for rate in (0.0, 0.3):
            normal = layers.LayerNormalization(epsilon=1e-5)(x)
            heard = layers.MultiHeadAttention(2, 6, dropout=0.1)(normal, normal)
            x = layers.Add()([StochasticDepth(rate)(heard), x])
            hidden = layers.LayerNormalization(epsilon=1e-5)(x)
            hidden = layers.Dense(6, activation="gelu")(hidden)
            x = layers.Add()([StochasticDepth(rate)(hidden), x])
        x = SequencePooling()(layers.LayerNormalization(epsilon=1e-5)(x))
        return keras.Model(inputs, layers.Dense(CLASSES)(x))

    classify(run, make, lambda: keras.optimizers.AdamW(1e-3, weight_decay=1e-4))


@example("examples/vision/involution")
def involution(run):
    class Involution(layers.Layer):
        """A kernel per pixel, made of the pixel."""

        def __init__(self, channels, size=3):
            super().__init__()
            self.size = size
            self.generate = keras.Sequential(
                [
                    layers.Conv2D(2, 1),
                    layers.BatchNormalization(),
                    layers.ReLU(),
                    layers.Conv2D(size * size, 1),
                ]
            )
            self.channels = channels

        def call(self, x):
            shape = (-1, x.shape[1], x.shape[2], self.size**2)
            kernel = self.generate(x)[..., None]
            around = ops.image.extract_patches(x, self.size, 1, padding="same")
            around = ops.reshape(around, (*shape, self.channels))
            return ops.sum(kernel * around, axis=3)

    def make():
        inputs = keras.Input((8, 8, 3))
        x = layers.MaxPooling2D(2)(layers.ReLU()(Involution(3)(inputs)))
        x = layers.Flatten()(layers.ReLU()(Involution(3)(x)))
        return keras.Model(inputs, layers.Dense(CLASSES)(x))

    classify(run, make)


@example("examples/vision/bit")
def big_transfer(run):
    """A frozen body, a head of zeros and steps of the learning rate."""
    x, y = labelled()
    with run.scope():
        body = keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layers.Conv2D(6, 3, activation="relu"),
                layers.GroupNormalization(2),
                layers.Conv2D(6, 3, activation="relu"),
                layers.GlobalAveragePooling2D(),
            ]
        )
        body.trainable = False
        head = layers.Dense(CLASSES, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((8, 8, 3)), body, head])
        schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
            [2, 4, 6], [0.03, 0.003, 3e-4, 3e-5]
        )
        model.compile(
            keras.optimizers.SGD(schedule, momentum=0.9),
            class_loss(),
            metrics=["accuracy"],
        )
    stop = keras.callbacks.EarlyStopping("val_accuracy", patience=2)
    run.fit(model, x, y, validation_data=(x, y), callbacks=[stop], epochs=4)


@example("examples/vision/mixup")
def mixup(run):
    """Pairs of rows are mixed in the data set."""
    x, y = labelled()
    y = np.eye(CLASSES)[y]
    share = np.random.default_rng(1).beta(0.2, 0.2, size=ROWS)
    other = np.random.default_rng(2).permutation(ROWS)

    def mixed(share, one, two):
        picture = one[0] * share + two[0] * (1 - share)
        return picture, one[1] * share + two[1] * (1 - share)

    pairs = tf.data.Dataset.zip(
        tf.data.Dataset.from_tensor_slices(share),
        tf.data.Dataset.from_tensor_slices((x, y)),
        tf.data.Dataset.from_tensor_slices((x[other], y[other])),
    )
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layers.Conv2D(4, 3, activation="relu"),
                layers.GlobalMaxPooling2D(),
                layers.Dense(CLASSES, activation="softmax"),
            ]
        )
        model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    run.fit(model, pairs.map(mixed).batch(6).prefetch(2))
