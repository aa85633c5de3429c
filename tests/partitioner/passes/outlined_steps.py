"""Trains small models, outlined and not; prints hashes of their weights.

For `test_outline.py`: TensorFlow reads the option for oneDNN at its start.
"""

import hashlib
import json

import keras
import numpy as np

import kerasmgpu
from kerasmgpu.engine.devices import make_logical_cpus
from kerasmgpu.partitioner.lowering import outlined
from kerasmgpu.partitioner.passes import outline

NUM_REPLICAS = 4
WIDTH = 48


def convolutional():
    """Convolutions of both kinds, normalisation, pooling."""
    layers = keras.layers
    model = keras.Sequential([keras.Input((12, 12, 8))])
    for _ in range(2):
        model.add(layers.Conv2D(16, 3, padding="same"))
        model.add(layers.BatchNormalization())
        model.add(layers.ReLU())
        model.add(layers.DepthwiseConv2D(3, padding="same"))
        model.add(layers.MaxPooling2D())
    model.add(layers.Conv2DTranspose(8, 2, strides=2))
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(1))
    return model


def attentive():
    """Products of matrices and of batches of matrices, softmax."""
    layers = keras.layers
    given = keras.Input((8, WIDTH))
    attended = layers.MultiHeadAttention(3, 16)(given, given)
    x = layers.LayerNormalization()(given + attended)
    x = layers.Dense(4 * WIDTH, activation="gelu")(x)
    x = layers.Flatten()(layers.Dense(WIDTH)(x))
    return keras.Model(given, layers.Dense(1)(x))


def weights(build, is_outlined):
    """Hash of the weights after some steps; and how many functions were made."""
    outline.FEWEST_REPLICAS = NUM_REPLICAS + (not is_outlined)
    made = []
    write = outlined.write
    outlined.write = lambda *args: made.append(1) or write(*args)
    keras.utils.set_random_seed(1)
    devices = [f"CPU:{number}" for number in range(NUM_REPLICAS)]
    with kerasmgpu.MirroredStrategy(devices).scope():
        model = build()
        model.compile("sgd", "mse", jit_compile=False)
    random = np.random.default_rng(2)
    x = random.normal(size=(64, *model.input_shape[1:])).astype("float32")
    y = random.normal(size=(64, 1)).astype("float32")
    model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    outlined.write = write
    found = hashlib.sha256()
    for weight in model.get_weights():
        found.update(weight.tobytes())
    return found.hexdigest(), len(made)


def main():
    make_logical_cpus(NUM_REPLICAS)
    steps = {}
    for build in (convolutional, attentive):
        ours, calls = weights(build, True)
        others, none = weights(build, False)
        if none:
            raise RuntimeError("The second step is outlined, too.")
        steps[build.__name__] = calls, ours, others
    onednn = outlined.is_rewritten_for_onednn()
    print(json.dumps({"onednn": onednn, "steps": steps}))


if __name__ == "__main__":
    main()
