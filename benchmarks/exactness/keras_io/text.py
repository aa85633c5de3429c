"""Programs after keras.io's examples of natural language processing."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import integers, reals, sentences
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example

WORDS = 11


def block(x, units=6):
    heard = layers.MultiHeadAttention(2, units // 2)(x, x)
    x = layers.LayerNormalization(epsilon=1e-6)(x + heard)
    hidden = layers.Dense(8, activation="relu")(x)
    return layers.LayerNormalization(epsilon=1e-6)(
        x + layers.Dropout(0.1)(layers.Dense(units)(hidden))
    )


def embedded(inputs, length, units=6):
    """Embeddings of words plus those of their places."""
    places = layers.Embedding(length, units)(ops.arange(length))
    return layers.Embedding(WORDS, units)(inputs) + places


@example("examples/nlp/text_classification_from_scratch")
def text_convolutions(run):
    """Text becomes numbers in a layer of the data set."""
    words = np.array(["cat", "dog", "sun", "rain"])
    x = [" ".join(words[i]) for i in integers(4, ROWS, 8)]
    y = integers(2, ROWS).astype("float64")
    vectorize = layers.TextVectorization(
        max_tokens=WORDS, output_sequence_length=8
    )
    vectorize.adapt(tf.data.Dataset.from_tensor_slices(x).batch(6))
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(6)
    with run.scope():
        inputs = keras.Input((None,), dtype="int64")
        x = layers.Dropout(0.5)(layers.Embedding(WORDS, 6)(inputs))
        for _ in range(2):
            x = layers.Conv1D(6, 3, strides=2, activation="relu")(x)
        x = layers.Dropout(0.5)(layers.GlobalMaxPooling1D()(x))
        model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
        model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    numbers = batches.map(lambda x, y: (vectorize(x), y))
    run.fit(model, numbers.cache().prefetch(2), validation_data=numbers)


@example("examples/nlp/text_generation_fnet")
def fnet(run):
    """Fourier transforms instead of attention; a decoder with masks."""

    class Encoder(layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = keras.Sequential(
                [layers.Dense(8, activation="relu"), layers.Dense(6)]
            )
            self.norm1 = layers.LayerNormalization()
            self.norm2 = layers.LayerNormalization()

        def call(self, x):
            waves, _ = ops.fft2((x, ops.zeros_like(x)))
            x = self.norm1(x + waves)
            return self.norm2(x + self.dense(x))

    with run.scope():
        inputs = keras.Input((6,), dtype="int32", name="told")
        coded = Encoder()(embedded(inputs, 6))
        answers = keras.Input((4,), dtype="int32", name="answered")
        x = embedded(answers, 4)
        x = x + layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)
        x = x + layers.MultiHeadAttention(2, 3)(x, coded)
        x = layers.Dropout(0.3)(layers.LayerNormalization()(x))
        outputs = layers.Dense(WORDS, activation="softmax")(x)
        model = keras.Model([inputs, answers], outputs)
        model.compile(
            "adam", "sparse_categorical_crossentropy", metrics=["accuracy"]
        )
    told = sentences(WORDS, ROWS, 5, seed=3)
    data = {"told": sentences(WORDS, ROWS, 6), "answered": told[:, :-1]}
    run.fit(model, data, told[:, 1:])


@example("examples/nlp/ner_transformers", in_suite=True)
def named_entities(run):
    """A loss of one's own leaves out the padding."""

    class MaskedLoss(keras.losses.Loss):
        def __init__(self):
            super().__init__()
            self.each = keras.losses.SparseCategoricalCrossentropy(
                from_logits=False, reduction=None
            )

        def call(self, y_true, y_pred):
            loss = self.each(y_true, y_pred)
            mask = ops.cast(y_true > 0, loss.dtype)
            return ops.sum(loss * mask) / ops.sum(mask)

    x = sentences(WORDS, ROWS, 6)
    y = np.where(x > 0, integers(4, ROWS, 6, lowest=1), 0)
    with run.scope():
        inputs = keras.Input((6,), dtype="int32")
        hidden = layers.Dropout(0.1)(block(embedded(inputs, 6)))
        outputs = layers.Dense(4, activation="softmax")(hidden)
        model = keras.Model(inputs, outputs)
        model.compile("adam", MaskedLoss())
    run.fit(model, x, y)
    run.keep(tags=model.predict(x, verbose=0))


@example("examples/nlp/active_learning_review_classification")
def active_learning(run):
    """What the model is least sure of is added to what it learns from."""
    x, y = reals(48, 5), integers(2, 48)
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((5,)),
                layers.Dense(6, activation="relu"),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(
            "rmsprop",
            "binary_crossentropy",
            metrics=[
                keras.metrics.BinaryAccuracy(),
                keras.metrics.FalseNegatives(),
                keras.metrics.FalsePositives(),
            ],
        )
    known, pool, asked = list(range(18)), list(range(18, 48)), []
    stop = keras.callbacks.EarlyStopping(patience=4)
    for _ in range(3):
        run.fit(
            model,
            x[known],
            y[known],
            validation_data=(x[:8], y[:8]),
            callbacks=[stop],
        )
        sure = np.abs(model.predict(x[pool], verbose=0)[:, 0] - 0.5)
        chosen = [pool[i] for i in np.argsort(sure)[:6]]
        known += chosen
        pool = [i for i in pool if i not in chosen]
        asked.append(chosen)
    run.keep(asked=asked)


@example("examples/nlp/masked_language_modeling")
def masked_language_model(run):
    """A step of its own weighs hidden words; a callback shows guesses."""

    class Masked(keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.each = keras.losses.SparseCategoricalCrossentropy(
                reduction=None
            )
            self.loss_tracker = keras.metrics.Mean(name="loss")

        @property
        def metrics(self):
            return [self.loss_tracker]

        def train_step(self, inputs):
            words, labels, hidden = inputs
            with tf.GradientTape() as tape:
                guessed = self(words, training=True)
                loss = self.each(labels, guessed, sample_weight=hidden)
            variables = self.trainable_variables
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables)
            )
            self.loss_tracker.update_state(loss, sample_weight=hidden)
            return {"loss": self.loss_tracker.result()}

    y = integers(WORDS, ROWS, 6)
    hidden = images_below(0.3, ROWS, 6)
    x = np.where(hidden, 1, y)
    with run.scope():
        inputs = keras.Input((6,), dtype="int32")
        outputs = layers.Dense(WORDS, activation="softmax")(
            block(embedded(inputs, 6))
        )
        model = Masked(inputs=inputs, outputs=outputs)
        model.compile(keras.optimizers.Adam(1e-3))
    guesses = []
    show = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: guesses.append(model.predict(x[:2], verbose=0))
    )
    data = tf.data.Dataset.from_tensor_slices((x, y, hidden)).batch(6)
    run.fit(model, data, callbacks=[show])
    run.keep(guesses=guesses)


def images_below(share, *shape):
    """Ones and zeros; this share of ones, and one per row at least."""
    hidden = np.random.default_rng(4).uniform(size=shape) < share
    hidden[:, 0] = True
    return hidden.astype("float64")
