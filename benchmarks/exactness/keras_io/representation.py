"""Programs after keras.io's examples of learned representations."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import images, integers
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example


def encoder(units=6):
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, strides=2),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(units),
        ]
    )


def unit(x):
    return ops.normalize(x, axis=-1)


def take_step(model, tape, loss, variables):
    gradients = tape.gradient(loss, variables)
    model.optimizer.apply_gradients(zip(gradients, variables))


@example("examples/vision/siamese_network", in_suite=True)
def siamese_triplets(run):
    class Siamese(keras.Model):
        def __init__(self, tower, margin=0.5):
            super().__init__()
            self.tower, self.margin = tower, margin
            self.loss_tracker = keras.metrics.Mean(name="loss")

        @property
        def metrics(self):
            return [self.loss_tracker]

        def loss_of(self, data):
            anchor, alike, other = (self.tower(x) for x in data)
            near = ops.sum(ops.square(anchor - alike), -1)
            far = ops.sum(ops.square(anchor - other), -1)
            return ops.maximum(near - far + self.margin, 0.0)

        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = self.loss_of(data)
            take_step(self, tape, loss, self.tower.trainable_weights)
            self.loss_tracker.update_state(loss)
            return {"loss": self.loss_tracker.result()}

        def test_step(self, data):
            self.loss_tracker.update_state(self.loss_of(data))
            return {"loss": self.loss_tracker.result()}

    triplets = tuple(images(ROWS, 8, 8, 3, seed=seed) for seed in range(3))
    batches = tf.data.Dataset.from_tensor_slices(triplets).batch(6)
    with run.scope():
        model = Siamese(encoder())
        model.compile(keras.optimizers.Adam(1e-3))
    run.fit(model, batches, validation_data=batches.take(2))


@example("examples/vision/supervised-contrastive-learning")
def supervised_contrastive(run):
    """An encoder learns from pairs; then a classifier on the frozen encoder."""

    class Contrastive(keras.losses.Loss):
        def call(self, labels, features):
            features = unit(features)
            logits = ops.matmul(features, ops.transpose(features)) / 0.5
            labels = ops.reshape(labels, (-1, 1))
            same = ops.cast(
                ops.equal(labels, ops.transpose(labels)), logits.dtype
            )
            same = same / ops.sum(same, axis=1, keepdims=True)
            return keras.losses.categorical_crossentropy(
                same, logits, from_logits=True
            )

    x, y = images(ROWS, 8, 8, 3), integers(3, ROWS)
    with run.scope():
        tower = encoder()
        learner = keras.Sequential(
            [keras.Input((8, 8, 3)), tower, layers.Dense(16, activation="relu")]
        )
        learner.compile(keras.optimizers.Adam(0.01), Contrastive())
    run.fit(learner, x, y)
    with run.scope():
        tower.trainable = False
        inputs = keras.Input((8, 8, 3))
        hidden = layers.Dropout(0.2)(tower(inputs, training=False))
        outputs = layers.Dense(3, activation="softmax")(hidden)
        model = keras.Model(inputs, outputs)
        model.compile(
            keras.optimizers.Adam(0.01),
            "sparse_categorical_crossentropy",
            metrics=["sparse_categorical_accuracy"],
        )
    run.fit(model, x, y)
    run.keep(score=model.evaluate(x, y, verbose=0))


@example("examples/vision/masked_image_modeling")
def masked_autoencoder(run):
    """Patches are hidden at random; the loss is that of the hidden ones."""

    class Masked(keras.Model):
        def __init__(self):
            super().__init__()
            self.embed = layers.Dense(6)
            self.encode = layers.MultiHeadAttention(2, 3)
            self.decode = layers.Dense(12)
            self.mask_token = self.add_weight(shape=(1, 1, 6))
            self.seed_generator = keras.random.SeedGenerator(1)

        def call(self, x):
            return self.decode(self.encode(self.embed(x), self.embed(x)))

        def compute_loss(self, x, y=None, y_pred=None, sample_weight=None,
                         training=True):  # fmt: skip
            count = ops.shape(x)[0]
            noise = keras.random.uniform((count, 16), seed=self.seed_generator)
            order = ops.argsort(noise, axis=-1)
            hidden, seen = order[:, :10], order[:, 10:]
            embedded = self.embed(x)
            kept = tf.gather(embedded, seen, batch_dims=1)
            kept = kept + self.encode(kept, kept)
            blank = ops.repeat(ops.repeat(self.mask_token, count, 0), 10, 1)
            made = self.decode(ops.concatenate([blank, kept], axis=1))
            wanted = tf.gather(x, hidden, batch_dims=1)
            return ops.mean(ops.square(wanted - made[:, :10]))

        def train_step(self, x):
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x)
            take_step(self, tape, loss, self.trainable_variables)
            return {"loss": loss}

    with run.scope():
        model = Masked()
        model(np.zeros((1, 16, 12)))
        model.compile(keras.optimizers.AdamW(5e-3, weight_decay=1e-4))
    run.fit(model, images(ROWS, 16, 12))


@example("examples/vision/reptile")
def reptile(run):
    """Few-shot learning: inner steps, then a step towards their result."""

    class Reptile:
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer

        def inner(self, x, y):
            with tf.GradientTape() as tape:
                loss = ops.mean(
                    keras.losses.sparse_categorical_crossentropy(
                        y, self.model(x, training=True)
                    )
                )
            variables = self.model.trainable_weights
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

    x, y = images(3, 10, 8, 8, 3), integers(3, 3, 10)
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layers.Conv2D(4, 3, strides=2, activation="relu"),
                layers.BatchNormalization(),
                layers.Flatten(),
                layers.Dense(3, activation="softmax"),
            ]
        )
        learner = Reptile(model, keras.optimizers.SGD(0.1))
        run.watch(model)
        step, losses = run.step(learner.inner), []
        for task in range(3):
            old = model.get_weights()
            losses += [float(step(x[task], y[task])) for _ in range(2)]
            new = model.get_weights()
            model.set_weights([a + (b - a) * 0.25 for a, b in zip(old, new)])
        run.keep(losses=losses)
