"""Models whose memory in a job is predicted and measured.

Each function returns a compiled model, and a data set of one batch.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops, optimizers

_RANDOM = np.random.default_rng(0)


def _of(model, optimizer, loss, x, y):
    """A compiled model, with a batch of all rows."""
    model.compile(optimizer, loss, jit_compile=False)
    return model, tf.data.Dataset.from_tensors((x, y))


def _floats(*shape):
    return _RANDOM.normal(size=shape).astype("float32")


def _cross_entropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _dense(num_layers, units, rows, activation="relu", optimizer="adam"):
    stack = [layers.Dense(units, activation) for _ in range(num_layers)]
    model = keras.Sequential([keras.Input((units,)), *stack])
    return _of(
        model, optimizer, "mse", _floats(rows, units), _floats(rows, units)
    )


def wide():
    return _dense(6, 1600, 64)


def deep():
    return _dense(32, 512, 512, "tanh")


def many_rows():
    return _dense(24, 512, 4096, "tanh")


def large():
    return _dense(10, 2000, 32)


def odd():
    """A size that no number of replicas divides."""
    optimizer = optimizers.Adam(use_ema=True, amsgrad=True)
    return _dense(9, 1237, 64, optimizer=optimizer)


def low_rank():
    model, data = _dense(6, 1600, 64)
    for layer in model.layers:
        layer.enable_lora(8)
    model.compile("adam", "mse", jit_compile=False)
    return model, data


def one_kernel():
    stack = [layers.Dense(4000, "relu"), layers.Dense(8), layers.Dense(3)]
    model = keras.Sequential([keras.Input((3000,)), *stack])
    return _of(model, "adam", "mse", _floats(64, 3000), _floats(64, 3))


def build_wide():
    """12 dense layers whose activations outweigh their weights, 3 MiB."""
    return _dense(12, 256, 1 << 13, "tanh")


def language_model(blocks, width, words, length, rows, optimizer, tied=False):
    """A GPT-like model; `tied`: its last layer is the table."""
    tokens = keras.Input((length,), dtype="int32")
    table = layers.Embedding(words, width)
    x = table(tokens)
    for _ in range(blocks):
        y = layers.LayerNormalization()(x)
        attention = layers.MultiHeadAttention(4, width // 4)
        x = x + attention(y, y, use_causal_mask=True)
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * width, activation="gelu")(y)
        x = x + layers.Dense(width)(y)
    x = layers.LayerNormalization()(x)
    if tied:
        logits = ops.matmul(x, ops.transpose(table.embeddings))
    else:
        logits = layers.Dense(words)(x)
    given = _RANDOM.integers(0, words, [rows, length], "int32")
    return _of(
        keras.Model(tokens, logits),
        optimizer,
        _cross_entropy(),
        given,
        np.roll(given, 1, axis=1),
    )


def build():
    """The language model of the tests."""
    optimizer = optimizers.AdamW(1e-3, global_clipnorm=1.0)
    return language_model(1, 128, 2000, 32, 32, optimizer)


def clipped():
    optimizer = optimizers.AdamW(1e-3, global_clipnorm=1.0)
    return language_model(4, 384, 1000, 32, 16, optimizer)


def many_words():
    return language_model(2, 192, 30000, 16, 16, "adam")


def tied():
    return language_model(3, 256, 12000, 24, 16, "adamw", tied=True)


def adafactor():
    return language_model(4, 384, 1000, 32, 16, "adafactor")


def accumulated():
    optimizer = optimizers.Lion(1e-4, gradient_accumulation_steps=2)
    return language_model(3, 384, 1000, 32, 16, optimizer)


def bfloat16():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        return language_model(4, 384, 1000, 32, 16, "adamw")
    finally:
        keras.config.set_dtype_policy("float32")


def build_normalised():
    """6 convolutions of 16 channels, with batch normalisation."""
    inputs = x = keras.Input((32, 32, 16))
    for _ in range(6):
        x = layers.Conv2D(16, 3, padding="same")(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    outputs = layers.Dense(10)(layers.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, outputs)
    return _of(model, "adam", "mse", _floats(128, 32, 32, 16), _floats(128, 10))


def residual():
    """Convolutions with batch normalisation and shortcuts."""
    inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(64, 3, padding="same")(inputs)
    for filters, strides in ((64, 1), (128, 2), (256, 2), (512, 2)):
        y = layers.Conv2D(filters, 3, strides, "same", use_bias=False)(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.Conv2D(filters, 3, padding="same", use_bias=False)(y)
        y = layers.BatchNormalization()(y)
        x = layers.ReLU()(y + layers.Conv2D(filters, 1, strides)(x))
    outputs = layers.Dense(100)(layers.GlobalAveragePooling2D()(x))
    return _of(
        keras.Model(inputs, outputs),
        optimizers.SGD(0.1, momentum=0.9),
        _cross_entropy(),
        _floats(32, 32, 32, 3),
        _RANDOM.integers(0, 100, 32),
    )


def u_net():
    def convolution(filters):
        return layers.Conv2D(filters, 3, padding="same", activation="relu")

    inputs = x = keras.Input((48, 48, 8))
    kept = []
    for filters in (32, 64, 128):
        x = convolution(filters)(x)
        kept.append(x)
        x = layers.MaxPooling2D()(x)
    x = convolution(512)(x)
    for filters in (128, 64, 32):
        x = layers.Conv2DTranspose(filters, 2, 2)(x)
        x = convolution(filters)(layers.Concatenate()([x, kept.pop()]))
    model = keras.Model(inputs, layers.Conv2D(4, 1)(x))
    return _of(
        model, "adam", "mse", _floats(16, 48, 48, 8), _floats(16, 48, 48, 4)
    )


def recurrent():
    inputs = keras.Input((24, 256))
    x = layers.LSTM(640, return_sequences=True, use_cudnn=False)(inputs)
    x = layers.LSTM(640, use_cudnn=False)(x)
    model = keras.Model(inputs, layers.Dense(256)(x))
    return _of(model, "adam", "mse", _floats(32, 24, 256), _floats(32, 256))


def tables(optimizer="adagrad"):
    sizes = (150_000, 40_000, 5_000)
    inputs = [keras.Input((8,), dtype="int32") for _ in sizes]
    x = [
        layers.GlobalAveragePooling1D()(layers.Embedding(size, 32)(one))
        for size, one in zip(sizes, inputs)
    ]
    x = layers.Dense(256, "relu")(layers.Concatenate()(x))
    rows = tuple(
        np.minimum(_RANDOM.zipf(1.2, (512, 8)) - 1, size - 1).astype("int32")
        for size in sizes
    )
    model = keras.Model(inputs, layers.Dense(1)(x))
    return _of(model, optimizer, "mse", rows, _floats(512, 1))


def tables_with_adam():
    return tables("adam")


class _Experts(layers.Layer):
    """Eight experts, all of which see each row, weighted by a softmax."""

    def build(self, shape):
        width = shape[-1]
        self.gate = self.add_weight(shape=(width, 8))
        self.up = self.add_weight(shape=(8, width, 1024))
        self.down = self.add_weight(shape=(8, 1024, width))

    def call(self, x):
        hidden = ops.relu(ops.einsum("bd,edh->beh", x, self.up))
        weights = ops.softmax(ops.matmul(x, self.gate))
        return x + ops.einsum("beh,ehd,be->bd", hidden, self.down, weights)

    def compute_output_shape(self, shape):
        return shape


def experts():
    stack = [_Experts(), _Experts(), _Experts(), layers.Dense(320)]
    model = keras.Sequential([keras.Input((320,)), *stack])
    return _of(model, "adam", "mse", _floats(64, 320), _floats(64, 320))


def _lay_out(layouts):
    """Sets a distribution of rows, and of columns over two workers.

    Args:
        layouts: Maps patterns of variables' paths to their mesh axes.
    """
    devices = keras.distribution.list_devices()
    mesh = keras.distribution.DeviceMesh(
        (len(devices) // 2, 2), ("batch", "model"), devices
    )
    layout_map = keras.distribution.LayoutMap(mesh)
    for path, axes in layouts.items():
        layout_map[path] = axes
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(
            layout_map=layout_map, batch_dim_name="batch"
        )
    )


def dense_on_a_mesh():
    """Rows of kernels: the sums of all layers go along one axis."""
    _lay_out({".*kernel": ("model", None)})
    return wide()


def language_model_on_a_mesh():
    """Heads and columns."""
    _lay_out(
        {
            ".*/(query|key|value)/kernel": (None, "model", None),
            ".*attention_output/kernel": ("model", None, None),
            ".*dense(_\\d+)?/kernel": (None, "model"),
            ".*embeddings": (None, "model"),
        }
    )
    return build()


MESHES = {
    dense_on_a_mesh: "6 dense layers of 1,600 units, rows of kernels",
    language_model_on_a_mesh: "language model, 1 block, 2,000 words, heads and columns",
}
"""Models of the table of meshes."""

TABLE = {
    wide: "6 dense layers of 1,600 units, 64 rows",
    deep: "32 dense layers of 512 units, 512 rows",
    many_rows: "24 dense layers of 512 units, 4,096 rows",
    large: "10 dense layers of 2,000 units, 32 rows",
    odd: "9 dense layers of 1,237 units, AMSGrad, moving averages",
    low_rank: "6 dense layers with LoRA",
    one_kernel: "one kernel of 3,000 × 4,000",
    clipped: "language model, 4 blocks, 1,000 words, clipped AdamW",
    many_words: "language model, 2 blocks, 30,000 words",
    tied: "language model, 3 blocks, 12,000 words, tied",
    adafactor: "language model, 4 blocks, Adafactor",
    accumulated: "language model, 3 blocks, Lion, accumulated gradients",
    bfloat16: "language model, 4 blocks, `mixed_bfloat16`",
    residual: "residual convolutions with batch normalisation",
    u_net: "U-Net",
    recurrent: "2 LSTMs of 640 units, 24 steps",
    tables: "3 tables of 195,000 rows, Adagrad",
    tables_with_adam: "… Adam",
    experts: "mixture of 8 experts, 3 layers",
}
"""Models of the table in the docs, with Adam where nothing else is said."""
