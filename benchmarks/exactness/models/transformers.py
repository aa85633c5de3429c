"""Transformers: of text, of pictures, with many kinds of heads and masks."""

import keras
from keras import layers, ops

from benchmarks.exactness.data import images, integers, reals, sentences
from benchmarks.exactness.models.fitted import fitted
from benchmarks.exactness.registry import model


def token_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def embedded(tokens, vocabulary, length, units, mask_zero=True):
    """Tokens' embeddings plus those of their positions."""
    words = layers.Embedding(vocabulary, units, mask_zero=mask_zero)(tokens)
    return words + Positions(length, units)(words)


class Positions(layers.Layer):
    """An embedding of each position."""

    def __init__(self, length, units, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.table = layers.Embedding(length, units)

    def call(self, inputs):
        return self.table(ops.arange(ops.shape(inputs)[1]))[None]

    def compute_output_shape(self, input_shape):
        return (1, *input_shape[1:])


def block(x, heads=2, units=8, dropout=0.1, **attention):
    """Attention and two dense layers, each in front of an addition."""
    normal = layers.LayerNormalization()(x)
    x += layers.MultiHeadAttention(heads, units // heads, dropout=dropout)(
        normal, normal, **attention
    )
    hidden = layers.Dense(16, activation="gelu")(layers.LayerNormalization()(x))
    return x + layers.Dropout(dropout)(layers.Dense(units)(hidden))


def gpt(optimizer, loss=None, **compile_args):
    tokens = keras.Input((None,), dtype="int32")
    x = embedded(tokens, 11, 6, 8)
    for _ in range(2):
        x = block(x, use_causal_mask=True)
    x = layers.LayerNormalization()(x)
    result = keras.Model(tokens, layers.Dense(11)(x))
    result.compile(optimizer, loss or token_loss(), **compile_args)
    return result


@model("transformers", replica_counts=(2, 3))
def gpt_like():
    words = sentences(11, 9, 7)
    decoder = gpt(
        keras.optimizers.AdamW(0.01, global_clipnorm=0.5),
        metrics=["accuracy"],
    )
    return fitted(decoder, words[:, :-1], words[:, 1:])


@model("transformers", precision="float32")
def gpt_like_in_float32():
    words = sentences(11, 9, 7)
    top = keras.metrics.SparseTopKCategoricalAccuracy(3)
    decoder = gpt(keras.optimizers.SGD(0.1), weighted_metrics=[top])
    return fitted(decoder, words[:, :-1], words[:, 1:])


@model("transformers", evaluates=True, predicts=True)
def bert_like():
    """Words that were left out are guessed; the first token says a class."""
    words = sentences(11, 9, 6)
    hidden = words.copy()
    hidden[:, ::3] = 10
    weights = (hidden != words).astype(keras.config.floatx())
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    segments = keras.Input((6,), dtype="int32", name="segments")
    x = embedded(tokens, 11, 6, 8)
    x = x + layers.Embedding(2, 8)(segments)
    x = layers.Dropout(0.1)(layers.LayerNormalization(epsilon=1e-12)(x))
    for _ in range(2):
        x = block(x)
    pooled = layers.Dense(8, activation="tanh")(x[:, 0])
    outputs = {
        "words": layers.Dense(11, name="words")(x),
        "next": layers.Dense(1, activation="sigmoid", name="next")(pooled),
    }
    encoder = keras.Model({"tokens": tokens, "segments": segments}, outputs)
    schedule = keras.optimizers.schedules.PolynomialDecay(0.01, 10)
    encoder.compile(
        keras.optimizers.Adam(schedule, global_clipnorm=1.0),
        {"words": token_loss(), "next": "binary_crossentropy"},
        loss_weights={"words": 1.0, "next": 0.5},
        metrics={"next": ["accuracy", keras.metrics.AUC()]},
        weighted_metrics={"words": ["accuracy"]},
    )
    return fitted(
        encoder,
        {"tokens": hidden, "segments": integers(2, 9, 6)},
        {"words": words, "next": integers(2, 9, 1, seed=3)},
        sample_weight={
            "words": weights,
            "next": reals(9, seed=4) ** 2,
        },
    )


@model("transformers")
def translating_transformer():
    """Encoder and decoder; the decoder looks at the masked source."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    encoded = block(embedded(source, 9, 5, 8), heads=4)
    x = embedded(target, 11, 6, 8)
    x = block(x, use_causal_mask=True)
    x += layers.MultiHeadAttention(2, 4, value_dim=3)(x, encoded)
    x = layers.LayerNormalization()(x)
    both = keras.Model([source, target], layers.Dense(11)(x))
    both.compile(keras.optimizers.Adam(0.01), token_loss())
    words = sentences(11, 9, 7)
    return fitted(both, [sentences(9, 9, 5, 2), words[:, :-1]], words[:, 1:])


@model("transformers")
def grouped_query_attention():
    tokens = keras.Input((6,), dtype="int32")
    x = embedded(tokens, 11, 6, 8)
    x += layers.GroupQueryAttention(2, 4, 2, dropout=0.1)(
        x, x, use_causal_mask=True
    )
    x = layers.RMSNormalization()(x)
    gate = layers.Dense(16, activation="silu")(x)
    x += layers.Dense(8)(gate * layers.Dense(16)(x))
    result = keras.Model(tokens, layers.Dense(11)(x))
    result.compile(keras.optimizers.Adam(0.01), token_loss())
    words = sentences(11, 9, 7)
    return fitted(result, words[:, :-1], words[:, 1:])


class Rotary(layers.Layer):
    """Turns pairs of units by angles of the position."""

    def call(self, inputs):
        length, units = ops.shape(inputs)[1], inputs.shape[-1]
        position = ops.cast(ops.arange(length), self.compute_dtype)
        rate = 10.0 ** (-ops.arange(units // 2, dtype=self.compute_dtype))
        angle = position[:, None] * rate
        sine, cosine = ops.sin(angle)[:, None], ops.cos(angle)[:, None]
        one, two = ops.split(inputs, 2, axis=-1)
        return ops.concatenate(
            [one * cosine - two * sine, one * sine + two * cosine], axis=-1
        )


class OwnAttention(layers.Layer):
    """Attention written with `ops`: reshape, transpose, softmax, einsum."""

    def __init__(self, heads, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads
        self.rotary = Rotary()
        self.supports_masking = True

    def build(self, shape):
        self.mix = layers.Dense(3 * shape[-1], use_bias=False)
        self.out = layers.Dense(shape[-1], use_bias=False)
        self.mix.build(shape)
        self.out.build(shape)

    def call(self, inputs, mask=None):
        rows, length, units = ops.shape(inputs)
        shape = (rows, length, self.heads, units // self.heads)
        query, key, value = (
            ops.reshape(part, shape)
            for part in ops.split(self.mix(inputs), 3, axis=-1)
        )
        query, key = self.rotary(query), self.rotary(key)
        query, key, value = (
            ops.transpose(part, (0, 2, 1, 3)) for part in (query, key, value)
        )
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        allowed = ops.tril(ops.ones((length, length), "bool"))
        if mask is not None:
            allowed = ops.logical_and(allowed, mask[:, None, None, :])
        scores = ops.where(allowed, scores, -1e9)
        mixed = ops.matmul(ops.softmax(scores), value)
        mixed = ops.transpose(mixed, (0, 2, 1, 3))
        return self.out(ops.reshape(mixed, (rows, length, units)))


@model("transformers", in_suite=True)
def rotary_attention_by_hand():
    tokens = keras.Input((None,), dtype="int32")
    x = layers.Embedding(11, 8, mask_zero=True)(tokens)
    x = x + OwnAttention(2)(layers.RMSNormalization()(x))
    result = keras.Model(tokens, layers.Dense(11)(x))

    def flat_loss(y_true, y_pred):
        """As if tokens were rows, with padding left out by hand."""
        y_true = ops.reshape(y_true, (-1,))
        y_pred = ops.reshape(y_pred, (-1, 11))
        loss = ops.sparse_categorical_crossentropy(
            y_true, y_pred, from_logits=True
        )
        used = ops.cast(ops.not_equal(y_true, 0), loss.dtype)
        return ops.sum(loss * used) / ops.maximum(ops.sum(used), 1)

    result.compile(keras.optimizers.Adam(0.01), flat_loss)
    words = sentences(11, 9, 7)
    return fitted(result, words[:, :-1], words[:, 1:])


class Patches(layers.Layer):
    """Pictures cut into patches by reshape and transpose."""

    def call(self, inputs):
        x = ops.reshape(inputs, (-1, 2, 4, 2, 4, 3))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (-1, 4, 48))


class FirstToken(layers.Layer):
    """Puts a learned token in front of the others of each row."""

    def build(self, shape):
        self.token = self.add_weight(shape=(1, 1, shape[-1]))

    def call(self, inputs):
        shape = (ops.shape(inputs)[0], 1, inputs.shape[-1])
        token = ops.broadcast_to(self.token, shape)
        return ops.concatenate([token, inputs], axis=1)


class DropPath(layers.Layer):
    """Stochastic depth: leaves rows out as a whole."""

    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator(9)

    def call(self, inputs, training=False):
        if not training:
            return inputs
        shape = (ops.shape(inputs)[0],) + (1,) * (len(inputs.shape) - 1)
        kept = keras.random.uniform(
            shape, seed=self.seed_generator, dtype=inputs.dtype
        )
        kept = ops.floor(kept + 1 - self.rate)
        return inputs * kept / (1 - self.rate)


@model("transformers")
def vision_transformer():
    pictures = keras.Input((8, 8, 3))
    x = layers.Dense(8)(Patches()(pictures))
    x = FirstToken()(x)
    x = x + Positions(5, 8)(x)
    for _ in range(2):
        normal = layers.LayerNormalization()(x)
        x += DropPath(0.3)(layers.MultiHeadAttention(2, 4)(normal, normal))
        hidden = layers.Dense(16, activation="gelu")(x)
        x += DropPath(0.3)(layers.Dense(8)(hidden))
    result = keras.Model(pictures, layers.Dense(3)(x[:, 0]))
    result.compile(
        keras.optimizers.AdamW(0.01, 0.05),
        keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=0.1
        ),
        metrics=["accuracy", keras.metrics.F1Score(average="macro")],
    )
    classes = keras.utils.to_categorical(integers(3, 9), 3)
    return fitted(result, images(9, 8, 8, 3), classes)
