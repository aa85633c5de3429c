"""Programs after keras.io's recommenders."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import integers, reals
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example


@example("examples/structured_data/collaborative_filtering_movielens")
def movie_recommender(run):
    class Recommender(keras.Model):
        def __init__(self, users, movies, units=4):
            super().__init__()
            settings = dict(
                embeddings_initializer="he_normal",
                embeddings_regularizer=keras.regularizers.l2(1e-2),
            )
            self.user = layers.Embedding(users, units, **settings)
            self.user_bias = layers.Embedding(users, 1)
            self.movie = layers.Embedding(movies, units, **settings)
            self.movie_bias = layers.Embedding(movies, 1)

        def call(self, inputs):
            user, movie = inputs[:, 0], inputs[:, 1]
            alike = ops.tensordot(self.user(user), self.movie(movie), 2)
            bias = self.user_bias(user) + self.movie_bias(movie)
            return ops.sigmoid(alike + bias)

    x = np.stack([integers(7, ROWS), integers(9, ROWS, seed=1)], axis=1)
    y = np.random.default_rng(2).uniform(size=ROWS)
    with run.scope():
        model = Recommender(7, 9)
        model.compile(
            keras.optimizers.Adam(1e-2), keras.losses.BinaryCrossentropy()
        )
    run.fit(model, x, y, validation_data=(x, y))
    run.keep(ratings=model.predict(x[:8], verbose=0))


@example("keras_rs/examples/basic_retrieval")
def two_towers(run):
    """Users find their item among all items of the batch."""

    class Retrieval(keras.Model):
        def __init__(self):
            super().__init__()
            self.user = keras.Sequential(
                [layers.Embedding(7, 4), layers.Dense(4)]
            )
            self.item = keras.Sequential(
                [layers.Embedding(9, 4), layers.Dense(4)]
            )

        def call(self, inputs):
            user, item = self.user(inputs["user"]), self.item(inputs["item"])
            return ops.matmul(user, ops.transpose(item))

        def compute_loss(
            self, x=None, y=None, y_pred=None, sample_weight=None, training=True
        ):
            wanted = ops.eye(ops.shape(y_pred)[0])
            loss = keras.losses.categorical_crossentropy(
                ops.cast(wanted, y_pred.dtype), y_pred, from_logits=True
            )
            return ops.sum(loss)

    data = {"user": integers(7, ROWS), "item": integers(9, ROWS, seed=1)}
    batches = tf.data.Dataset.from_tensor_slices(data).batch(6).cache()
    with run.scope():
        model = Retrieval()
        model.compile(keras.optimizers.Adagrad(0.1))
    run.fit(model, batches)


@example("examples/keras_recipes/memory_efficient_embeddings")
def memory_efficient_embeddings(run):
    """Quotients and remainders share small tables."""

    class Compositional(layers.Layer):
        def __init__(self):
            super().__init__()
            self.quotient = layers.Embedding(3, 4)
            self.remainder = layers.Embedding(4, 4)

        def call(self, x):
            return self.quotient(x // 4) * self.remainder(x % 4)

    with run.scope():
        user = keras.Input((), dtype="int32", name="user")
        movie = keras.Input((), dtype="int32", name="movie")
        mixed = layers.Embedding(12, 3)(movie) * layers.Embedding(12, 1)(movie)
        alike = layers.Dot(axes=1)(
            [Compositional()(user), layers.Dense(4)(mixed)]
        )
        model = keras.Model([user, movie], alike)
        model.compile("adam", "mse", metrics=["mae"])
    data = {"user": integers(12, ROWS), "movie": integers(12, ROWS, seed=1)}
    run.fit(model, data, reals(ROWS, 1), validation_split=0.2)
