"""Programs after public reports: what `fit` and `predict` are fed with."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from benchmarks.exactness.data import images, integers, reals, sentences
from benchmarks.exactness.keras_io.run import BATCH_SIZE, ROWS
from benchmarks.exactness.registry import report


def small_net(outputs=1, features=5, **settings):
    """A net of two dense layers."""
    return keras.Sequential(
        [
            keras.Input((features,)),
            layers.Dense(6, activation="tanh"),
            layers.Dense(outputs),
        ],
        **settings,
    )


@report("tensorflow/tensorflow", 59091)
def hundred_rows_of_one_number(run):
    """Reported: the process ends without a word in `fit`."""
    row = ([1.0], [1.0])
    data = tf.data.Dataset.from_tensors(row).repeat(100).batch(10)
    with run.scope():
        model = keras.Sequential([keras.Input((1,)), layers.Dense(1)])
        model.compile("sgd", "mse")
    run.fit(model, data)
    run.keep(loss=model.evaluate(data, verbose=0))


@report("tensorflow/tensorflow", 36224)
def last_batch_of_one_row(run):
    """Reported: the loss is NaN where a replica gets no rows."""
    x, y = reals(13, 5), integers(3, 13)
    with run.scope():
        model = small_net(3)
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    run.fit(model, x, y, validation_data=(x[:7], y[:7]))


@report("tensorflow/tensorflow", 87432)
def more_than_sixty_steps(run):
    """Reported: the loss jumps to NaN in step 61."""
    data = tf.data.Dataset.from_tensor_slices((reals(280, 5), reals(280, 1)))
    with run.scope():
        model = small_net()
        model.compile(keras.optimizers.Adam(0.01), "mse")
    run.fit(model, data.batch(4).repeat(), steps_per_epoch=70)


@report("tensorflow/tensorflow", 26709)
def zipped_features_and_labels(run):
    """Reported: an assertion fails as soon as there are two devices."""
    ones = tf.data.Dataset.from_tensors([1.0]).repeat(1000).batch(BATCH_SIZE)
    with run.scope():
        model = keras.Sequential([keras.Input((1,)), layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.2), "mean_squared_error")
    data = tf.data.Dataset.zip((ones, ones))
    run.fit(model, data, epochs=3, steps_per_epoch=10)


@report("tensorflow/tensorflow", 41290)
def class_weights_of_distributed_data(run):
    """Reported: `class_weight` fails for data that the strategy distributed."""
    x, y = reals(ROWS, 5), integers(2, ROWS)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH_SIZE)
    with run.scope():
        strategy = tf.distribute.get_strategy()
        data = strategy.experimental_distribute_dataset(data)
        model = small_net(2)
        model.compile(
            keras.optimizers.SGD(0.1),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    run.fit(model, data, class_weight={0: 1.0, 1: 3.0}, steps_per_epoch=4)


@report("tensorflow/tensorflow", 24226)
def weights_of_time_steps(run):
    """Reported: a weight per time step is not implemented for strategies."""
    tokens = sentences(11, ROWS, 6)
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((6,), dtype="int32"),
                layers.Embedding(11, 4, mask_zero=True),
                layers.GRU(5, return_sequences=True),
                layers.Dense(11),
            ]
        )
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=["accuracy"],
        )
    weights = images(ROWS, 6)
    run.fit(model, tokens, np.roll(tokens, -1, 1), sample_weight=weights)


@report("huggingface/transformers", 11265)
def predictions_in_a_dictionary(run):
    """Reported: `predict` returns empty outputs."""

    class Outputs(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = layers.Dense(6, activation="tanh")
            self.logits = layers.Dense(3)

        def call(self, inputs):
            pooled = self.hidden(inputs["values"] * inputs["mask"])
            return {"logits": self.logits(pooled), "pooled": pooled}

    x = {
        "values": reals(ROWS, 5),
        "mask": integers(2, ROWS, 5).astype("float64"),
    }
    with run.scope():
        model = Outputs()
        model.compile(
            keras.optimizers.Adam(0.01),
            {"logits": keras.losses.SparseCategoricalCrossentropy(True)},
        )
    run.fit(model, x, {"logits": integers(3, ROWS)})
    run.keep(**model.predict(x, batch_size=8, verbose=0))


class WordSums(keras.Model):
    """Sums what it knows of each word of a sentence, of any length."""

    def __init__(self):
        super().__init__()
        self.known = layers.Embedding(11, 4)
        self.top = layers.Dense(1)

    def call(self, words):
        return self.top(tf.reduce_sum(self.known(words.to_tensor()), axis=1))


@report("keras-team/keras", 15593)
def ragged_rows_are_evaluated(run):
    """Reported: finite data of ragged rows fail while they are evaluated."""
    rows = [row[row > 0] for row in sentences(11, ROWS, 6)]
    data = tf.data.Dataset.from_tensor_slices(
        (tf.ragged.constant(rows), reals(ROWS, 1))
    ).batch(BATCH_SIZE)
    with run.scope():
        model = WordSums()
        model.compile(keras.optimizers.SGD(0.05), "mse")
    run.fit(model, data, validation_data=data)
    run.keep(loss=model.evaluate(data, verbose=0))


@report("tensorflow/tensorflow", 50507)
def ragged_rows_of_strings(run):
    """Reported: a pass over distributed ragged strings raises."""
    words = tf.ragged.constant([["a", "bcd"], ["ef"], [], ["g"], ["hi", "j"]])
    data = tf.data.Dataset.from_tensor_slices(words).batch(4)
    with run.scope():
        strategy = tf.distribute.get_strategy()
        totals = []
        for batch in strategy.experimental_distribute_dataset(data):
            counts = strategy.run(
                lambda rows: tf.reduce_sum(tf.strings.length(rows).values),
                args=(batch,),
            )
            totals.append(strategy.reduce("SUM", counts, axis=None).numpy())
    run.keep(totals=np.array(totals))


@report("tensorflow/tensorflow", 49137)
def sparse_rows_of_a_generator(run):
    """Reported: sparse rows from a generator fail in workers."""
    x, y = reals(ROWS, 9) * (images(ROWS, 9) < 0.3), integers(3, ROWS)

    def rows():
        for one, label in zip(x, y):
            yield tf.sparse.from_dense(one), label

    data = tf.data.Dataset.from_generator(
        rows,
        output_signature=(
            tf.SparseTensorSpec((9,), tf.float64),
            tf.TensorSpec((), tf.int32),
        ),
    )
    with run.scope():
        inputs = keras.Input((9,), sparse=True)
        hidden = layers.Dense(6, activation="relu")(inputs)
        model = keras.Model(inputs, layers.Dense(3)(hidden))
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    run.fit(model, data.batch(BATCH_SIZE))
