"""Programs of float64 that sharded and plain strategies must train alike."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

RANDOM = np.random.default_rng(0)
IDS = RANDOM.integers(0, 11, (13, 5))
NEXT = RANDOM.integers(0, 11, (13, 5))
ROWS = RANDOM.normal(size=(13, 6))
TARGETS = RANDOM.normal(size=(13, 2))
PICTURES = RANDOM.normal(size=(13, 6, 6, 2))
CLASSES = RANDOM.integers(0, 3, 13)

layers, optimizers = keras.layers, keras.optimizers


@dataclasses.dataclass
class Program:
    """A compiled model, and what it is trained on."""

    model: keras.Model
    x: object
    y: object

    def run(self, evaluates=True):
        """Trains; returns weights, logs and, where it evaluates, predictions."""
        fitted = self.model.fit(
            self.x, self.y, batch_size=5, epochs=2, shuffle=False, verbose=0
        )
        trained = {
            "weights": self.model.get_weights(),
            "history": fitted.history,
        }
        if not evaluates:
            return trained
        evaluated = self.model.evaluate(
            self.x, self.y, batch_size=4, verbose=0, return_dict=True
        )
        predicted = self.model.predict(self.x, batch_size=4, verbose=0)
        return {
            **trained,
            "evaluation": evaluated,
            "predictions": predicted,
        }


def perceptron(optimizer="sgd", loss="mse", **compiled):
    """Two dense layers, compiled."""
    inputs = keras.Input((6,))
    x = layers.Dense(7, "tanh")(inputs)
    model = keras.Model(inputs, layers.Dense(2)(x))
    model.compile(optimizer, loss, metrics=["mae"], **compiled)
    return Program(model, ROWS, TARGETS)


def gpt():
    """A transformer with a tied table."""
    tokens = keras.Input((5,), dtype="int32")
    table = layers.Embedding(11, 8)
    x = table(tokens)
    y = layers.LayerNormalization()(x)
    x += layers.MultiHeadAttention(2, 4)(y, y, use_causal_mask=True)
    y = layers.Dense(12, "gelu")(layers.LayerNormalization()(x))
    x += layers.Dense(8)(y)
    logits = x @ keras.ops.transpose(table.embeddings)
    model = keras.Model(tokens, logits)
    model.compile(
        optimizers.AdamW(0.01, global_clipnorm=0.5),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return Program(model, IDS, NEXT)


def convnet():
    inputs = keras.Input((6, 6, 2))
    x = layers.Conv2D(5, 3, padding="same", use_bias=False)(inputs)
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.5)(x))
    x = layers.DepthwiseConv2D(3, padding="same")(x)
    x = layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, layers.Dense(3, "softmax")(x))
    model.compile(
        optimizers.SGD(0.1, momentum=0.9, nesterov=True),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return Program(model, PICTURES, CLASSES)


def masked_lstm():
    tokens = keras.Input((5,), dtype="int32")
    x = layers.Embedding(11, 4, mask_zero=True)(tokens)
    x = layers.LSTM(6, return_sequences=True)(x)
    model = keras.Model(tokens, layers.Dense(2)(layers.GRU(4)(x)))
    model.compile("rmsprop", "mse")
    return Program(model, IDS, TARGETS)


def tables(optimizer):
    """Two embeddings of sparse gradients, one with a bag per row."""
    tokens = keras.Input((5,), dtype="int32")
    bag = layers.Embedding(11, 4)(tokens)
    first = layers.Embedding(12, 3)(tokens[:, 0])
    x = layers.Concatenate()([keras.ops.mean(bag, 1), first])
    model = keras.Model(tokens, layers.Dense(2)(x))
    model.compile(optimizer, "mse")
    return Program(model, IDS, TARGETS)


def lora():
    program = perceptron()
    for layer in program.model.layers[1:]:
        layer.enable_lora(2)
    program.model.compile(optimizers.Adam(0.01), "mse")
    return program


def int8_base():
    """Adapters of layers whose weights are integers."""
    program = perceptron()
    program.model.quantize("int8")
    program.model.layers[1].enable_lora(2)
    program.model.compile(optimizers.Adam(0.01), "mse")
    return program


class Gan(keras.Model):
    """Two networks, each with an optimizer of its own."""

    def __init__(self):
        super().__init__()
        self.generator = layers.Dense(6, "tanh")
        self.critic = keras.Sequential(
            [layers.Dense(5, "relu"), layers.Dense(1)]
        )
        self.first = optimizers.Adam(0.01)
        self.second = optimizers.RMSprop(0.01)

    def call(self, x):
        return self.critic(self.generator(x))

    def train_step(self, data):
        x, _ = data
        with tf.GradientTape() as tape:
            made = self.critic(self.generator(x[:, ::-1]))
            loss = tf.reduce_mean((self.critic(x) - 1) ** 2 + made**2)
        weights = self.critic.trainable_variables
        self.second.apply_gradients(zip(tape.gradient(loss, weights), weights))
        with tf.GradientTape() as tape:
            made = self.critic(self.generator(x[:, ::-1]))
            second = tf.reduce_mean((made - 1) ** 2)
        weights = self.generator.trainable_variables
        self.first.apply_gradients(zip(tape.gradient(second, weights), weights))
        return {"loss": loss, "generator": second}


def gan():
    model = Gan()
    model.compile(loss="mse")
    model(ROWS[:1])
    return Program(model, ROWS, TARGETS[:, :1])


class Ternary(layers.Layer):
    """A layer with weights that a step assigns, of floats and integers."""

    def build(self, shape):
        self.kernel = self.add_weight(
            shape=(shape[-1], 4),
            constraint=keras.constraints.UnitNorm(),
            regularizer="l2",
        )
        self.mean = self.add_weight(shape=(6,), trainable=False)
        self.steps = self.add_weight(
            shape=(4,), dtype="int32", trainable=False, initializer="zeros"
        )

    def call(self, x):
        self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(x, 0))
        self.steps.assign_add(keras.ops.ones_like(self.steps))
        return (x - self.mean) @ self.kernel


def own_weights():
    inputs = keras.Input((6,))
    x = layers.Dense(5, kernel_constraint="non_neg")(Ternary()(inputs))
    x = layers.SpectralNormalization(layers.Dense(4))(x)
    nested = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    model = keras.Model(inputs, nested(x))
    model.compile("adam", "mse")
    return Program(model, ROWS, TARGETS)


PROGRAMS = {
    "gpt": gpt,
    "convnet": convnet,
    "masked lstm": masked_lstm,
    "tables, adagrad": lambda: tables(optimizers.Adagrad(0.1)),
    "tables, sgd": lambda: tables(optimizers.SGD(0.1)),
    "tables, momentum": lambda: tables(optimizers.SGD(0.1, momentum=0.9)),
    "tables, clipnorm": lambda: tables(optimizers.Adam(0.1, clipnorm=0.1)),
    "lora": lora,
    "int8 base": int8_base,
    "gan": gan,
    "ema": lambda: perceptron(
        optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=2)
    ),
    "loss scale": lambda: perceptron(
        optimizers.LossScaleOptimizer(optimizers.Adam(0.01), 8)
    ),
    "gradient accumulation": lambda: perceptron(
        optimizers.Adam(0.01, gradient_accumulation_steps=2)
    ),
    "weight decay": lambda: perceptron(optimizers.AdamW(0.1)),
    "steps per execution": lambda: perceptron("adam", steps_per_execution=3),
    "jit compile": lambda: perceptron("adam", jit_compile=True),
    "run eagerly": lambda: perceptron("adam", run_eagerly=True),
    "own weights": own_weights,
}
"""By name, functions that make a `Program`."""

FLOAT32 = {"lora", "int8 base"}
"""Programs with weights that Keras always makes in float32."""
