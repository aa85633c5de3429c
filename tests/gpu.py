"""Trains small models on one GPU and on its logical parts, and compares.

    python -m tests.gpu --replicas=2

It needs one GPU of any size, which it divides into as many logical ones as there
are replicas; without one it runs on logical CPU devices, which proves nothing
about GPUs. What it found is in docs/gpus.md. The tests themselves run on parts
of a GPU with KERASMGPU_TEST_GPUS; see `tests.devices`.
"""

import contextlib

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags, logging
from keras import layers

import kerasmgpu

FLAGS = flags.FLAGS
flags.DEFINE_integer("replicas", 2, "Replicas.", lower_bound=1)
flags.DEFINE_integer("megabytes", 1500, "Memory of each logical GPU.")
flags.DEFINE_bool("xla", False, "Compile the steps (jit_compile=True).")

TOLERANCE = 5e-3
"""Largest difference of a weight over the largest update of any, in float32:
kernels for other numbers of rows round in other places, and eight steps amplify
it."""

ROWS = 90
SETTINGS = [
    {},
    {"shard": "optimizer", "min_shard_bytes": 0},
    {"shard": "weights", "min_shard_bytes": 0, "micro_batches": 2},
]


def _dense(random):
    """Dense layers and dropout."""
    model = keras.Sequential(
        [layers.Dense(64, "relu"), layers.Dropout(0.3), layers.Dense(1)]
    )
    return model, random.random((ROWS, 20), "float32")


def _convolutions(random):
    """A convolution, batch normalisation, pooling."""
    model = keras.Sequential(
        [
            layers.Conv2D(8, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPool2D(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(1),
        ]
    )
    return model, random.random((ROWS, 16, 16, 3), "float32")


def _lstm(random):
    """An embedding and cuDNN's LSTM."""
    model = keras.Sequential(
        [layers.Embedding(50, 8), layers.LSTM(16), layers.Dense(1)]
    )
    return model, random.integers(0, 50, (ROWS, 12))


def _masked_gru(random):
    """cuDNN's GRU in both directions, with padding at the end of each row."""
    model = keras.Sequential(
        [
            layers.Embedding(50, 8, mask_zero=True),
            layers.Bidirectional(layers.GRU(16)),
            layers.Dense(1),
        ]
    )
    words = random.integers(1, 50, (ROWS, 12))
    lengths = random.integers(3, 12, (ROWS, 1))
    return model, np.where(np.arange(12) < lengths, words, 0)


def _attention(random):
    """Attention and layer normalisation."""
    inputs = keras.Input((10, 8))
    hidden = layers.MultiHeadAttention(2, 4)(inputs, inputs)
    hidden = layers.LayerNormalization()(hidden + inputs)
    hidden = layers.GlobalAveragePooling1D()(hidden)
    model = keras.Model(inputs, layers.Dense(1)(hidden))
    return model, random.random((ROWS, 10, 8), "float32")


def _u_net(random):
    """Convolutions, transposed ones and skips."""
    inputs = keras.Input((16, 16, 4))
    near = layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
    far = layers.MaxPooling2D()(near)
    far = layers.Conv2D(16, 3, padding="same", activation="relu")(far)
    back = layers.Conv2DTranspose(8, 2, 2)(far)
    hidden = layers.Concatenate()([back, near])
    hidden = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 1)(hidden))
    model = keras.Model(inputs, layers.Dense(1)(hidden))
    return model, random.random((ROWS, 16, 16, 4), "float32")


MODELS = [_dense, _convolutions, _lstm, _masked_gru, _attention, _u_net]
RECURRENT = [_lstm, _masked_gru]
"""cuDNN's operations can't be compiled by XLA."""


def _trained(make, strategy, compiled):
    """Weights before and after training, the last loss, predictions."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    scope = strategy.scope() if strategy else contextlib.nullcontext()
    random = np.random.default_rng(5)
    with scope:
        model, x = make(random)
        model.build(x.shape)
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(optimizer, "mse", metrics=["mae"], jit_compile=compiled)
    before = model.get_weights()
    y = random.random((ROWS, 1), "float32")
    history = model.fit(x, y, batch_size=32, epochs=2, verbose=0).history
    predictions = model.predict(x, verbose=0)
    return before, model.get_weights(), history["loss"][-1], predictions


def _compare(make, devices, setting, one):
    """Prints a row; returns whether replicas end as one device."""
    compiled = FLAGS.xla and make not in RECURRENT
    strategy = kerasmgpu.MirroredStrategy(devices, **setting)
    _, weights, loss, predictions = _trained(make, strategy, compiled)
    before, expected, own_loss, own_predictions = one
    largest = max(np.abs(a - b).max() for a, b in zip(expected, before))
    apart = max(np.abs(a - b).max() for a, b in zip(expected, weights))
    distance = apart / largest
    print(
        f"{make.__name__[1:]:<13} {setting.get('shard', 'none'):<10} "
        f"{setting.get('micro_batches', 1)} parts  weights {distance:.0e}  "
        f"loss {own_loss:.6f} {loss:.6f}  "
        f"predictions {np.abs(own_predictions - predictions).max():.0e}",
        flush=True,
    )
    return bool(distance < TOLERANCE)


def main(_):
    gpus = tf.config.list_physical_devices("GPU")
    divided = (gpus or tf.config.list_physical_devices("CPU"))[0]
    part = tf.config.LogicalDeviceConfiguration(
        FLAGS.megabytes if gpus else None
    )
    tf.config.set_logical_device_configuration(divided, [part] * FLAGS.replicas)
    # TF32 products have ten bits of mantissa: nothing could be compared.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    kind = divided.device_type
    devices = [f"{kind}:{number}" for number in range(FLAGS.replicas)]
    logging.set_verbosity(logging.ERROR)
    print(f"{FLAGS.replicas} replicas on {kind}, {tf.__version__}", flush=True)
    same = True
    for make in MODELS:
        compiled = FLAGS.xla and make not in RECURRENT
        one = _trained(make, None, compiled)
        for setting in SETTINGS:
            same &= _compare(make, devices, setting, one)
    print("same" if same else "NOT THE SAME")
    return 0 if same else 1


if __name__ == "__main__":
    app.run(main)
