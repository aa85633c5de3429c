"""KerasHub's recommender, and keras-rs's layers in programs like its examples'."""

import keras
import tensorflow as tf

from benchmarks.exactness.data import integers, reals, sentences
from benchmarks.exactness.keras_hub.programs import ROWS, optimizer, program, rs
from benchmarks.exactness.registry import family


@family("rqvae")
def rqvae():
    from keras_hub.src.models.rqvae import rqvae_backbone

    backbone = rqvae_backbone.RQVAEBackbone(
        input_dim=16,
        encoder_layer_dims=[32, 16],
        output_dim=8,
        decoder_layer_dims=[16, 32],
        num_embeddings=4,
        num_quantizers=2,
        decay=0.99,
        data_variance=1.0,
        commitment_cost=0.25,
    )
    backbone.compile(optimizer())
    return program(backbone, reals(ROWS, 16))


@family("keras-rs: feature cross")
def feature_cross():
    """As its example of deep and cross networks."""
    inputs = keras.Input((3,), dtype="int32")
    x = keras.layers.Flatten()(keras.layers.Embedding(9, 4)(inputs))
    x = rs().layers.FeatureCross(projection_dim=3)(x, x)
    x = rs().layers.FeatureCross()(x, x)
    outputs = keras.layers.Dense(1)(keras.layers.Dense(8, "relu")(x))
    model = keras.Model(inputs, outputs)
    model.compile(optimizer(), "mse")
    return program(model, integers(9, ROWS, 3), reals(ROWS, 1))


@family("keras-rs: dot interaction")
def dot_interaction():
    """A DLRM: dense features, looked-up ones, and products of all pairs."""
    dense, sparse = keras.Input((4,)), keras.Input((3,), dtype="int32")
    bottom = keras.layers.Dense(4, "relu")(dense)
    found = keras.layers.Embedding(9, 4)(sparse)
    each = [bottom, *keras.ops.unstack(found, 3, axis=1)]
    pairs = rs().layers.DotInteraction()(each)
    top = keras.layers.Concatenate()([bottom, pairs])
    model = keras.Model([dense, sparse], keras.layers.Dense(1)(top))
    model.compile(
        optimizer(), keras.losses.BinaryCrossentropy(from_logits=True)
    )
    x = [reals(ROWS, 4), integers(9, ROWS, 3)]
    return program(model, x, integers(2, ROWS, 1))


@family("keras-rs: distributed embedding")
def distributed_embedding():
    """Tables, shared by features; a sum, a mean and an average by weight."""
    layers = rs().layers
    tables = [
        layers.TableConfig(f"table{i}", 9 + i, 4, combiner=combiner)
        for i, combiner in enumerate(["sum", "mean", "sqrtn"])
    ]
    features = {
        f"feature{i}": layers.FeatureConfig(
            f"feature{i}", tables[i % 3], (None, 2), (None, 4)
        )
        for i in range(4)
    }
    inputs = {
        name: keras.Input((2,), dtype="int32", name=name) for name in features
    }
    found = layers.DistributedEmbedding(features)(inputs)
    top = keras.layers.Concatenate()([found[name] for name in sorted(found)])
    model = keras.Model(inputs, keras.layers.Dense(1)(top))
    model.compile(optimizer(), "mse")
    x = {
        name: integers(9, ROWS, 2, seed=number)
        for number, name in enumerate(features)
    }
    return program(model, x, reals(ROWS, 1))


class Retrieval(keras.Model):
    """Two towers, as in its example of retrieval."""

    def __init__(self):
        super().__init__()
        self.queries = keras.layers.Embedding(12, 4)
        self.candidates = keras.layers.Embedding(9, 4)
        self.negatives = rs().layers.HardNegativeMining(2)
        self.accidents = rs().layers.RemoveAccidentalHits()
        self.correction = rs().layers.SamplingProbabilityCorrection()
        self.by_class = keras.losses.CategoricalCrossentropy(
            from_logits=True, reduction="sum"
        )

    def call(self, inputs):
        return self.queries(inputs["query"]), self.candidates(inputs["item"])

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        queries, items = y_pred
        logits = keras.ops.matmul(queries, keras.ops.transpose(items))
        labels = keras.ops.eye(keras.ops.shape(logits)[0], dtype=logits.dtype)
        logits = self.correction(logits, x["probability"])
        logits = self.accidents(logits, labels, x["item"])
        logits, labels = self.negatives(logits, labels)
        return self.by_class(labels, logits)


@family("keras-rs: retrieval")
def retrieval():
    model = Retrieval()
    model.compile(optimizer())
    items = integers(9, ROWS)
    x = {
        "query": integers(12, ROWS, seed=1),
        "item": items,
        "probability": 0.05 + 0.01 * items.astype(keras.config.floatx()),
    }
    model(x)
    return program(model, x, reals(ROWS))


@family("keras-rs: best candidates")
def best_candidates():
    """The nearest items of a query, from a list that is a variable."""
    inputs = keras.Input((4,))
    queries = keras.layers.Dense(4)(inputs)
    nearest = rs().layers.BruteForceRetrieval(
        reals(9, 4, seed=3), k=3, return_scores=True
    )
    scores, _ = nearest(queries)
    model = keras.Model(inputs, scores)
    model.compile(optimizer(), "mse")
    return program(model, reals(ROWS, 4), reals(ROWS, 3, seed=1))


def ranked(loss):
    """Registers a list-wise ranking by a loss, with all ranking metrics."""

    def make():
        inputs = keras.Input((5, 3))
        x = keras.layers.Dense(8, "relu")(inputs)
        scores = keras.layers.Flatten()(keras.layers.Dense(1)(x))
        model = keras.Model(inputs, scores)
        metrics = rs().metrics
        model.compile(
            optimizer(),
            getattr(rs().losses, loss)(),
            metrics=[
                getattr(metrics, name)()
                for name in (
                    "DCG",
                    "MeanAveragePrecision",
                    "MeanReciprocalRank",
                    "NDCG",
                    "PrecisionAtK",
                    "RecallAtK",
                )
            ],
        )
        relevance = integers(2, ROWS, 5, seed=1)
        relevance[:, 0] = 1
        return program(
            model, reals(ROWS, 5, 3), relevance.astype(keras.config.floatx())
        )

    make.__module__ = __name__
    family(f"keras-rs: {loss}", make)


for _loss in (
    "ListMLELoss",
    "PairwiseHingeLoss",
    "PairwiseLogisticLoss",
    "PairwiseMeanSquaredError",
    "PairwiseSoftZeroOneLoss",
):
    ranked(_loss)


@family("keras-rs: sequential retrieval")
def sequential_retrieval():
    """As its example: a GRU reads what was seen, and finds what comes next."""
    history = keras.Input((5,), dtype="int32", name="history")
    item = keras.Input((), dtype="int32", name="item")
    table = keras.layers.Embedding(11, 4, mask_zero=True)
    query = keras.layers.GRU(4)(table(history))
    found = keras.layers.Embedding(11, 4)(item)
    scores = keras.layers.Dot(1)([query, found])
    model = keras.Model({"history": history, "item": item}, scores)
    model.compile(
        optimizer(), keras.losses.BinaryCrossentropy(from_logits=True)
    )
    x = {
        "history": sentences(11, ROWS, 5),
        "item": integers(11, ROWS, lowest=1),
    }
    return program(model, x, integers(2, ROWS, 1))


class MultiTask(keras.Model):
    """As its example of several tasks: ratings, and what was looked at."""

    def __init__(self):
        super().__init__()
        self.users, self.films = (
            keras.layers.Embedding(count, 4) for count in (12, 9)
        )
        self.rating = keras.Sequential(
            [keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]
        )

    def call(self, inputs):
        user, film = self.users(inputs["user"]), self.films(inputs["film"])
        both = keras.ops.concatenate([user, film], axis=1)
        return {"user": user, "film": film, "rating": self.rating(both)}

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        rating = keras.ops.mean((y_pred["rating"] - y) ** 2)
        logits = y_pred["user"] @ keras.ops.transpose(y_pred["film"])
        looked = keras.ops.mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                tf.range(tf.shape(logits)[0]), logits
            )
        )
        return rating + 0.5 * looked


@family("keras-rs: multi task")
def multi_task():
    model = MultiTask()
    model.compile(optimizer())
    x = {"user": integers(12, ROWS), "film": integers(9, ROWS, seed=1)}
    model(x)
    return program(model, x, reals(ROWS, 1))
