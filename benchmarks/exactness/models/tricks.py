"""What people do to training: teachers, experts, adapters, other precisions."""

import keras
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import images, integers, reals, sentences
from benchmarks.exactness.models.fitted import fitted
from benchmarks.exactness.registry import model


def class_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def network(seed=0):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, strides=2, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(8, activation="relu"),
            layers.Dense(3),
        ]
    )


def on_pictures(result, **more):
    return fitted(result, images(9, 8, 8, 1), integers(3, 9), **more)


class Distiller(keras.Model):
    """A student learns from labels and from its teacher's softened answers."""

    def __init__(self, student, teacher, **kwargs):
        super().__init__(**kwargs)
        self.student, self.teacher = student, teacher
        self.teacher.trainable = False

    def call(self, x, training=False):
        return self.student(x, training=training)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        taught = ops.softmax(self.teacher(x, training=False) / 3.0, axis=1)
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        soft = keras.losses.kl_divergence(taught, ops.softmax(y_pred / 3.0))
        return 0.3 * loss + 0.7 * 9.0 * ops.mean(soft)


@model("tricks")
def distillation():
    result = Distiller(network(1), network(2))
    result.compile(
        keras.optimizers.Adam(0.01), class_loss(), metrics=["accuracy"]
    )
    return on_pictures(result)


class SharpnessAware(keras.Model):
    """Takes the gradient where the loss is highest nearby (SAM)."""

    def train_step(self, data):
        x, y = data
        variables = self.trainable_variables
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        gradients = tape.gradient(loss, variables)
        length = tf.linalg.global_norm(gradients) + 1e-12
        ways = [0.05 * gradient / length for gradient in gradients]
        for variable, way in zip(variables, ways):
            variable.assign_add(way)
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        gradients = tape.gradient(loss, variables)
        for variable, way in zip(variables, ways):
            variable.assign_sub(way)
        self.optimizer.apply_gradients(zip(gradients, variables))
        return {"loss": loss, "sharpness": length}


@model("tricks", in_suite=True)
def sharpness_aware_minimisation():
    inner = network(1)
    result = SharpnessAware(inner.inputs[0], inner.outputs[0])
    result.compile(keras.optimizers.SGD(0.05, momentum=0.9), class_loss())
    return on_pictures(result)


class Experts(layers.Layer):
    """Each token goes to its best expert, which has room for a few only."""

    def __init__(self, experts=3, room=5, **kwargs):
        super().__init__(**kwargs)
        self.experts, self.room = experts, room

    def build(self, shape):
        units = shape[-1]
        self.gate = self.add_weight(shape=(units, self.experts))
        self.one = self.add_weight(shape=(self.experts, units, 6))
        self.two = self.add_weight(shape=(self.experts, 6, units))

    def call(self, inputs):
        units = inputs.shape[-1]
        tokens = ops.reshape(inputs, (-1, units))
        shares = ops.softmax(ops.matmul(tokens, self.gate))
        best = ops.argmax(shares, axis=-1)
        chosen = ops.one_hot(best, self.experts, dtype=tokens.dtype)
        self.add_loss(
            0.1
            * self.experts
            * ops.sum(ops.mean(chosen, axis=0) * ops.mean(shares, axis=0))
        )
        # The place of a token in its expert's queue, over all the batch.
        place = ops.cumsum(chosen, axis=0) * chosen - 1.0
        chosen = chosen * ops.cast(place < self.room, tokens.dtype)
        place = ops.cast(ops.sum(place * chosen, axis=-1), "int32")
        seats = ops.one_hot(place, self.room, dtype=tokens.dtype)
        sent = chosen[:, :, None] * seats[:, None, :]
        given = ops.einsum("tec,tu->ecu", sent, tokens)
        hidden = ops.relu(ops.einsum("ecu,euh->ech", given, self.one))
        made = ops.einsum("ech,ehu->ecu", hidden, self.two)
        back = ops.einsum("tec,ecu->tu", sent, made)
        back = back * ops.max(shares, axis=-1, keepdims=True)
        return inputs + ops.reshape(back, ops.shape(inputs))


@model("tricks", in_suite=True)
def mixture_of_experts():
    result = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            layers.Embedding(9, 4),
            Experts(),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3),
        ]
    )
    result.compile(keras.optimizers.Adam(0.02), class_loss())
    return fitted(result, integers(9, 9, 5), integers(3, 9))


class SoftExperts(layers.Layer):
    """Each row is the mixture of its two best experts."""

    def build(self, shape):
        self.gate = layers.Dense(4)
        self.gate.build(shape)
        self.kernels = self.add_weight(shape=(4, shape[-1], shape[-1]))

    def call(self, inputs):
        best, which = ops.top_k(self.gate(inputs), 2)
        made = ops.einsum("bu,euv->bev", inputs, self.kernels)
        made = ops.take_along_axis(made, which[..., None], axis=1)
        return ops.sum(ops.softmax(best)[..., None] * made, axis=1)


@model("tricks")
def two_best_experts():
    result = keras.Sequential(
        [keras.Input((4,)), SoftExperts(), layers.Dense(1)]
    )
    result.compile(keras.optimizers.Adam(0.02), "mse")
    return fitted(result, reals(9, 4), reals(9, 1, seed=1))


def text_classifier():
    tokens = keras.Input((6,), dtype="int32")
    x = layers.Embedding(11, 8)(tokens)
    x += layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.Dense(8, activation="relu")(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(tokens, layers.Dense(3)(x))


@model(
    "tricks",
    tolerance=1e-5,
    why="Keras makes the adapters' weights in float32, whatever the policy",
)
def low_rank_adapters():
    result = text_classifier()
    for layer in result.layers:
        if isinstance(layer, (layers.Dense, layers.Embedding)):
            layer.enable_lora(2)
        elif isinstance(layer, layers.MultiHeadAttention):
            layer.query_dense.enable_lora(2)
            layer.value_dense.enable_lora(2)
    result.compile(keras.optimizers.SGD(0.1, momentum=0.9), class_loss())
    return fitted(result, sentences(11, 9, 6), integers(3, 9))


class ComputedAgain(layers.Layer):
    def build(self, shape):
        self.inner = layers.Dense(8, activation="tanh")
        self.inner.build(shape)

    def call(self, inputs):
        return keras.remat(self.inner)(inputs)


@model("tricks")
def call_that_is_computed_again():
    result = keras.Sequential(
        [keras.Input((4,)), ComputedAgain(), layers.Dense(1)]
    )
    result.compile(keras.optimizers.Adam(0.01), "mse")
    return fitted(result, reals(9, 4), reals(9, 1, seed=1))


@model(
    "tricks",
    precision="float32",
    tolerance=0.2,
    why="float8 has 3 bits: a sum's last bit can round an activation otherwise",
)
def float8():
    result = text_classifier()
    result.compile(keras.optimizers.Adam(0.01), class_loss())
    result.quantize("float8")
    result.compile(keras.optimizers.Adam(0.01), class_loss())
    return fitted(result, sentences(11, 9, 6), integers(3, 9))


def in_mixed(policy, optimizer):
    keras.config.set_dtype_policy(policy)
    result = network(3)
    result.add(layers.Activation("linear", dtype="float32"))
    result.compile(optimizer, class_loss(), metrics=["accuracy"])
    return on_pictures(result)


@model(
    "tricks",
    precision="float32",
    tolerance=0.05,
    why="float16 has 10 bits, and gradients are summed in another order",
)
def mixed_float16():
    """`compile` puts a `LossScaleOptimizer` around the optimizer."""
    return in_mixed("mixed_float16", keras.optimizers.SGD(0.05))


@model(
    "tricks",
    precision="float32",
    tolerance=0.3,
    why="bfloat16 has 7 bits, and gradients are summed in another order",
)
def mixed_bfloat16():
    return in_mixed("mixed_bfloat16", keras.optimizers.SGD(0.05))


@model("tricks")
def two_steps_per_execution():
    result = network()
    result.compile(
        keras.optimizers.Adam(0.01), class_loss(), steps_per_execution=2
    )
    return on_pictures(result)


@model("tricks", jit_compile=True)
def compiled_by_xla():
    result = network()
    result.compile(keras.optimizers.Adam(0.01), class_loss())
    return on_pictures(result)


class DeepQ(keras.Model):
    """Learns values of actions from those of a slower copy of itself."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.values, self.slow = (
            keras.Sequential(
                [keras.Input((4,)), layers.Dense(6, "relu"), layers.Dense(3)]
            )
            for _ in range(2)
        )
        self.slow.trainable = False
        self.steps = self.add_weight(shape=(), dtype="int64", trainable=False)

    def train_step(self, data):
        now, action, reward, then = data
        wanted = reward + 0.9 * ops.max(self.slow(then), axis=1)
        with tf.GradientTape() as tape:
            value = tf.gather(self.values(now), action, batch_dims=1)
            loss = ops.mean(keras.losses.huber(wanted, value))
        variables = self.values.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        self.steps.assign_add(1)
        tf.cond(self.steps % 2 == 0, self.copy, lambda: None)
        return {"loss": loss}

    def copy(self):
        for slow, fast in zip(self.slow.weights, self.values.weights):
            slow.assign(fast)


@model("tricks")
def deep_q_learning():
    result = DeepQ()
    result.compile(keras.optimizers.Adam(0.02))
    data = (reals(9, 4), integers(3, 9), reals(9, seed=1), reals(9, 4, seed=2))
    batches = tf.data.Dataset.from_tensor_slices(data).batch(4)
    return fitted(result, batches, batch_size=None)


@model("tricks")
def wide_and_deep():
    """Columns of a table: numbers, words, a cross of two of them."""
    number = keras.Input((2,), name="number")
    word = keras.Input((1,), dtype="string", name="word")
    other = keras.Input((1,), dtype="string", name="other")
    normal = layers.Normalization(mean=[0.1, 0.2], variance=[1.0, 2.0])(number)
    known = layers.StringLookup(vocabulary=["a", "b", "c"])(word)
    embedded = layers.Flatten()(layers.Embedding(4, 3)(known))
    crossed = layers.HashedCrossing(7, output_mode="one_hot")((word, other))
    deep = layers.Dense(6, "relu")(layers.Concatenate()([normal, embedded]))
    outputs = layers.Dense(1)(deep) + layers.Dense(1)(crossed)
    result = keras.Model([number, word, other], outputs)
    result.compile(
        keras.optimizers.Ftrl(0.05),
        keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.AUC(from_logits=True)],
    )
    words = ["a", "b", "c", "d"]
    columns = {
        "number": reals(9, 2),
        "word": [[words[i]] for i in integers(4, 9)],
        "other": [[words[i]] for i in integers(4, 9, seed=3)],
    }
    labels = integers(2, 9, 1).astype(keras.config.floatx())
    batches = tf.data.Dataset.from_tensor_slices((columns, labels)).batch(4)
    return fitted(result, batches, batch_size=None)
