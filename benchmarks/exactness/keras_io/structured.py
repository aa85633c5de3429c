"""Programs after keras.io's examples of structured data."""

import keras
import numpy as np
from keras import layers, ops

from benchmarks.exactness.data import integers, reals
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example


def columns():
    """Three columns of numbers, two of categories."""
    return {
        "numbers": reals(ROWS, 3),
        "kind": integers(5, ROWS, 1),
        "place": integers(4, ROWS, 1, seed=1),
    }


def inputs_of_columns():
    return {
        "numbers": keras.Input((3,), name="numbers"),
        "kind": keras.Input((1,), dtype="int32", name="kind"),
        "place": keras.Input((1,), dtype="int32", name="place"),
    }


def embeddings(inputs, units=4):
    kind = layers.Embedding(5, units)(inputs["kind"])
    place = layers.Embedding(4, units)(inputs["place"])
    return [layers.Reshape((units,))(x) for x in (kind, place)]


def classify(run, make, optimizer=None):
    with run.scope():
        inputs = inputs_of_columns()
        outputs = layers.Dense(3, activation="softmax")(make(inputs))
        model = keras.Model(inputs, outputs)
        model.compile(
            optimizer() if optimizer else "adam",
            "sparse_categorical_crossentropy",
            metrics=["sparse_categorical_accuracy"],
        )
    y = integers(3, ROWS, seed=2)
    run.fit(model, columns(), y, validation_data=(columns(), y))
    run.keep(score=model.evaluate(columns(), y, verbose=0))


@example("examples/structured_data/wide_deep_cross_networks")
def deep_and_cross(run):
    def make(inputs):
        first = layers.concatenate([*embeddings(inputs), inputs["numbers"]])
        first = cross = layers.BatchNormalization()(first)
        for _ in range(2):
            cross = first * layers.Dense(11)(cross) + cross
        deep = layers.ReLU()(
            layers.BatchNormalization()(layers.Dense(8)(first))
        )
        deep = layers.Dropout(0.2)(deep)
        return layers.concatenate([layers.BatchNormalization()(cross), deep])

    classify(run, make)


@example("examples/structured_data/classification_with_grn_and_vsn")
def gated_residuals_and_variable_selection(run):
    class Gated(layers.Layer):
        """A gated residual network."""

        def __init__(self, units):
            super().__init__()
            self.elu = layers.Dense(units, activation="elu")
            self.linear, self.skip = layers.Dense(units), layers.Dense(units)
            self.dropout = layers.Dropout(0.1)
            self.gate = layers.Dense(units, activation="sigmoid")
            self.normal = layers.LayerNormalization()
            self.units = units

        def call(self, x):
            hidden = self.dropout(self.linear(self.elu(x)))
            x = x if x.shape[-1] == self.units else self.skip(x)
            return self.normal(x + self.linear(hidden) * self.gate(hidden))

    def make(inputs):
        parts = [*embeddings(inputs), layers.Dense(4)(inputs["numbers"])]
        weights = layers.Dense(3, activation="softmax")(
            Gated(4)(layers.concatenate(parts))
        )
        stacked = layers.Lambda(lambda parts: ops.stack(parts, axis=1))(
            [Gated(4)(part) for part in parts]
        )
        return layers.Flatten()(layers.Dot(axes=(1, 1))([weights, stacked]))

    classify(run, make)


@example("examples/structured_data/tabtransformer")
def tab_transformer(run):
    def make(inputs):
        x = layers.Lambda(lambda parts: ops.stack(parts, axis=1))(
            embeddings(inputs)
        )
        x = x + layers.Embedding(2, 4)(ops.arange(2))
        for _ in range(2):
            heard = layers.MultiHeadAttention(2, 4, dropout=0.2)(x, x)
            x = layers.LayerNormalization(epsilon=1e-6)(
                layers.Add()([heard, x])
            )
            hidden = layers.Dense(4, activation="gelu")(x)
            x = layers.LayerNormalization(epsilon=1e-6)(
                layers.Add()([hidden, x])
            )
        numbers = layers.LayerNormalization(epsilon=1e-6)(inputs["numbers"])
        x = layers.concatenate([layers.Flatten()(x), numbers])
        x = layers.Dense(6, activation="selu")(layers.BatchNormalization()(x))
        return layers.Dropout(0.2)(x)

    classify(run, make, lambda: keras.optimizers.AdamW(1e-3, weight_decay=1e-4))


@example("examples/structured_data/deep_neural_decision_forests")
def neural_decision_forest(run):
    class Tree(keras.Model):
        """Each node sends a row left or right with a probability."""

        def __init__(self, depth, features, seed):
            super().__init__()
            self.depth, leaves = depth, 2**depth
            used = np.random.default_rng(seed).permutation(features)[:4]
            self.used = np.eye(features)[used]
            self.leaves = self.add_weight(
                shape=(leaves, 4), initializer="random_normal"
            )
            self.decide = layers.Dense(leaves, activation="sigmoid")

        def call(self, features):
            chosen = ops.matmul(features, ops.transpose(self.used))
            decisions = ops.expand_dims(self.decide(chosen), axis=2)
            decisions = ops.concatenate([decisions, 1 - decisions], axis=2)
            reached = ops.ones_like(decisions[:, :1, :1])
            begin = 1
            for level in range(self.depth):
                reached = ops.reshape(reached, (-1, 2**level, 1))
                reached = ops.tile(reached, (1, 1, 2))
                end = begin + 2**level
                reached = reached * decisions[:, begin:end]
                begin = end
            reached = ops.reshape(reached, (-1, 2**self.depth))
            return ops.matmul(reached, ops.softmax(self.leaves))

    def make(inputs):
        features = layers.concatenate([*embeddings(inputs), inputs["numbers"]])
        features = layers.BatchNormalization()(features)
        return layers.Average()(
            [Tree(3, 11, seed)(features) for seed in range(3)]
        )

    classify(run, make)


@example("examples/keras_recipes/bayesian_neural_networks")
def bayesian_layer(run):
    """Weights are drawn anew in each call; the output is a distribution."""

    class Drawn(layers.Layer):
        def __init__(self, units):
            super().__init__()
            self.units = units
            self.seed_generator = keras.random.SeedGenerator(9)

        def build(self, shape):
            size = (shape[-1], self.units)
            self.mean = self.add_weight(shape=size)
            self.spread = self.add_weight(shape=size, initializer="zeros")

        def call(self, x):
            spread = ops.softplus(self.spread) * 0.1
            noise = keras.random.normal(
                ops.shape(self.mean), seed=self.seed_generator
            )
            divergence = -ops.log(spread) + (spread**2 + self.mean**2) / 2
            self.add_loss(0.01 * ops.sum(divergence))
            return ops.matmul(x, self.mean + spread * noise)

    def likelihood(y, output):
        mean, spread = output[:, :1], ops.softplus(output[:, 1:]) + 0.1
        return ops.log(spread) + ops.square(y - mean) / (2 * spread**2)

    with run.scope():
        inputs = inputs_of_columns()
        x = layers.BatchNormalization()(inputs["numbers"])
        x = layers.concatenate([*embeddings(inputs), x])
        x = layers.Activation("sigmoid")(Drawn(6)(x))
        model = keras.Model(inputs, layers.Dense(2)(x))
        model.compile(keras.optimizers.RMSprop(0.01), likelihood)
    run.fit(model, columns(), reals(ROWS, 1, seed=3))


@example("examples/structured_data/imbalanced_classification")
def fraud_with_class_weights(run):
    """Few positives, weighed by how few; precision and recall are measured."""
    x = reals(ROWS, 6)
    y = (np.arange(ROWS)[:, None] % 9 == 1).astype("uint8")
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(8, activation="relu"),
                layers.Dropout(0.3),
                layers.Dense(8, activation="relu"),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(
            keras.optimizers.Adam(0.01),
            "binary_crossentropy",
            metrics=[
                keras.metrics.FalseNegatives(name="fn"),
                keras.metrics.TruePositives(name="tp"),
                keras.metrics.Precision(name="precision"),
                keras.metrics.Recall(name="recall"),
            ],
        )
    weights = {0: 1.0 / int((y == 0).sum()), 1: 1.0 / int((y == 1).sum())}
    run.fit(model, x, y, class_weight=weights, validation_data=(x, y))
