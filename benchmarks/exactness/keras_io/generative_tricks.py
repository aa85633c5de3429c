"""Programs after keras.io's generative examples: text, style, few data."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import images, sentences
from benchmarks.exactness.keras_io.generative import (
    TwoOptimizers,
    cross_entropy,
    judge,
    maker,
)
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example


@example("examples/generative/gan_ada")
def adaptive_discriminator_augmentation(run):
    """Pictures are augmented more often as the judge gets surer."""

    class Adaptive(TwoOptimizers):
        def __init__(self):
            super().__init__()
            self.judge, self.maker = judge(1), maker(4)
            self.probability = self.add_weight(
                shape=(), initializer="zeros", trainable=False
            )
            self.augment = keras.Sequential(
                [keras.Input((8, 8, 1)), layers.RandomTranslation(0.2, 0.2)]
            )
            self.seed_generator = keras.random.SeedGenerator(42)
            self.accuracy = keras.metrics.BinaryAccuracy(
                name="real", threshold=0.0
            )

        @property
        def metrics(self):
            return [self.accuracy]

        def maybe(self, x):
            drawn = keras.random.uniform(
                (ops.shape(x)[0], 1, 1, 1), seed=self.seed_generator
            )
            return ops.where(
                drawn < self.probability, self.augment(x, training=True), x
            )

        def train_step(self, real):
            count = ops.shape(real)[0]
            noise = keras.random.normal((count, 4), seed=self.seed_generator)
            real = self.maybe(real)
            with tf.GradientTape(persistent=True) as tape:
                fake = self.maybe(self.maker(noise, training=True))
                on_real, on_fake = self.judge(real), self.judge(fake)
                maker_loss = cross_entropy()(ops.ones((count, 1)), on_fake)
                judge_loss = cross_entropy()(
                    ops.concatenate(
                        [ops.ones((count, 1)), ops.zeros((count, 1))], 0
                    ),
                    ops.concatenate([on_real, on_fake], 0),
                )
            for network, loss, optimizer in (
                (self.maker, maker_loss, self.maker_optimizer),
                (self.judge, judge_loss, self.judge_optimizer),
            ):
                variables = network.trainable_weights
                optimizer.apply(tape.gradient(loss, variables), variables)
            self.accuracy.update_state(ops.ones((count, 1)), on_real)
            change = (self.accuracy.result() - 0.3) / 4.0
            self.probability.assign(
                ops.clip(
                    self.probability + ops.cast(change, real.dtype), 0.0, 1.0
                )
            )
            return {
                "maker": maker_loss,
                "probability": self.probability,
                "real": self.accuracy.result(),
            }

    with run.scope():
        model = Adaptive()
        model.compile(
            keras.optimizers.Adam(1e-3, beta_1=0.5),
            keras.optimizers.Adam(1e-3, beta_1=0.5),
        )
    run.fit(model, images(ROWS, 8, 8, 1))


@example("examples/generative/neural_style_transfer")
def neural_style(run):
    """The picture itself is what is trained, in a loop of its own."""
    base, style = images(1, 8, 8, 3), images(1, 8, 8, 3, seed=1)
    with run.scope():
        inputs = keras.Input((8, 8, 3))
        shallow = layers.Conv2D(4, 3, activation="relu")(inputs)
        deep = layers.Conv2D(4, 3, activation="relu")(shallow)
        features = keras.Model(inputs, [shallow, deep])
        picture = keras.Variable(base, name="picture")
        optimizer = keras.optimizers.SGD(
            keras.optimizers.schedules.ExponentialDecay(0.5, 2, 0.96)
        )
        optimizer.build([picture])

    def gram(x):
        x = ops.reshape(ops.transpose(x, (2, 0, 1)), (4, -1))
        return ops.matmul(x, ops.transpose(x))

    def train(base, style):
        with tf.GradientTape() as tape:
            both = ops.concatenate([base, style, picture.value], axis=0)
            shallow, deep = features(both)
            content = ops.sum(ops.square(deep[2] - deep[0]))
            apart = ops.square(gram(shallow[1]) - gram(shallow[2]))
            rough = ops.sum(tf.image.total_variation(picture.value))
            loss = 0.1 * content + 0.01 * ops.sum(apart) + 0.01 * rough
        optimizer.apply([tape.gradient(loss, picture.value)], [picture])
        return loss

    with run.scope():
        step = run.step(train)
        losses = [float(step(base, style)) for _ in range(4)]
    run.keep(losses=losses, picture=ops.convert_to_numpy(picture))


@example("examples/generative/text_generation_with_miniature_gpt")
def miniature_gpt(run):
    """A callback writes text with the model at each epoch's end."""

    class Writer(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.texts = []

        def on_epoch_end(self, epoch, logs=None):
            text = [1, 2]
            for _ in range(3):
                padded = np.array([text + [0] * (6 - len(text))])
                scores, _ = self.model.predict(padded, verbose=0)
                text.append(int(np.argmax(scores[0, len(text) - 1])))
            self.texts.append(text)

    def causal(count, length):
        i, j = ops.arange(length)[:, None], ops.arange(length)
        return ops.broadcast_to((i >= j)[None], (count, length, length))

    class Block(layers.Layer):
        def __init__(self):
            super().__init__()
            self.att = layers.MultiHeadAttention(2, 3)
            self.ffn = keras.Sequential(
                [layers.Dense(6, activation="relu"), layers.Dense(6)]
            )
            self.norm1 = layers.LayerNormalization(epsilon=1e-6)
            self.norm2 = layers.LayerNormalization(epsilon=1e-6)
            self.dropout = layers.Dropout(0.1)

        def call(self, x, training=False):
            mask = causal(ops.shape(x)[0], ops.shape(x)[1])
            heard = self.att(x, x, attention_mask=mask)
            x = self.norm1(x + self.dropout(heard, training=training))
            return self.norm2(x + self.ffn(x))

    words = sentences(9, ROWS, 7)
    with run.scope():
        inputs = keras.Input((6,), dtype="int32")
        where = layers.Embedding(6, 6)(ops.arange(6))
        x = Block()(layers.Embedding(9, 6)(inputs) + where)
        model = keras.Model(inputs, [layers.Dense(9, name="words")(x), x])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss=[loss, None])
    writer = Writer()
    batches = tf.data.Dataset.from_tensor_slices((words[:, :-1], words[:, 1:]))
    run.fit(model, batches.batch(6), callbacks=[writer])
    run.keep(texts=writer.texts)
