"""The benchmarked models and their data, for every backend.

Keras is imported only when a model is built: the parent process does not need
it, and the child process must select Keras's backend first.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

NUM_BATCHES = 8
"""Number of generated batches, which training repeats."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model and its data.

    Attributes:
        description: String, for the table.
        global_batch_size: Integer, rows of a step over all replicas.
        build: Function that returns the model, its optimizer and its loss.
        arrays: Function of a NumPy generator and a number of rows that
            returns the arrays `x` and `y`.
        is_in_pytorch: Whether `torch_models` has the same model.
    """

    description: str
    global_batch_size: int
    build: Callable
    arrays: Callable
    is_in_pytorch: bool = True


def _deep_narrow():
    import keras

    layers = [keras.layers.Dense(32, activation="relu") for _ in range(50)]
    model = keras.Sequential(
        [keras.Input((32,)), *layers, keras.layers.Dense(32)]
    )
    return model, keras.optimizers.Adam(1e-4), "mse"


def _deep_narrow_arrays(random, rows):
    x = random.normal(size=(rows, 32)).astype("float32")
    return x, np.tanh(x)


NUM_ITEMS = 3706  # Rated movies of MovieLens-1M.


def _autoencoder():
    import keras

    model = keras.Sequential([keras.Input((NUM_ITEMS,))])
    for units in (500, 250, 500, NUM_ITEMS):
        model.add(keras.layers.Dense(units, activation="sigmoid"))
    return model, keras.optimizers.RMSprop(1e-3), "mse"


def _autoencoder_arrays(random, rows):
    ratings = random.integers(1, 6, size=(rows, NUM_ITEMS)) / 5
    # MovieLens-1M has 1,000,209 ratings of 6,040 users by 3,706 movies.
    known = random.random(size=(rows, NUM_ITEMS)) < 0.0447
    x = (ratings * known).astype("float32")
    return x, x


def _convnet():
    import keras

    model = keras.Sequential([keras.Input((32, 32, 3))])
    for filters in (32, 64, 128):
        model.add(
            keras.layers.Conv2D(
                filters, 3, strides=2, padding="same", activation="relu"
            )
        )
    model.add(keras.layers.GlobalAveragePooling2D())
    model.add(keras.layers.Dense(10))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, keras.optimizers.SGD(0.01, momentum=0.9), loss


def _convnet_arrays(random, rows):
    x = random.normal(size=(rows, 32, 32, 3)).astype("float32")
    return x, random.integers(10, size=(rows, 1)).astype("int32")


VOCABULARY = 100_000
WORDS = 40


def _embeddings():
    import keras

    words = keras.Input((WORDS,), dtype="int32")
    vectors = keras.layers.Embedding(VOCABULARY, 32)(words)
    mean = keras.layers.GlobalAveragePooling1D()(vectors)
    hidden = keras.layers.Dense(64, activation="relu")(mean)
    model = keras.Model(words, keras.layers.Dense(1)(hidden))
    # On TensorFlow, plain SGD keeps an embedding's gradient sparse: only the
    # rows that a batch looked up, not all 100,000.
    return model, keras.optimizers.SGD(0.1), "mse"


def _embeddings_arrays(random, rows):
    x = random.integers(VOCABULARY, size=(rows, WORDS)).astype("int32")
    return x, (x.mean(axis=1, keepdims=True) / VOCABULARY).astype("float32")


def _resnet50():
    import keras

    model = keras.applications.ResNet50(
        weights=None, input_shape=(32, 32, 3), classes=10
    )
    return model, keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy"


def _transformer(num_layers=12):
    import keras

    tokens = keras.Input((16, 64))
    x = tokens
    for _ in range(num_layers):
        attention = keras.layers.MultiHeadAttention(4, 16)
        x = keras.layers.LayerNormalization()(x + attention(x, x))
        hidden = keras.layers.Dense(128, activation="gelu")(x)
        x = keras.layers.LayerNormalization()(
            x + keras.layers.Dense(64)(hidden)
        )
    x = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(tokens, keras.layers.Dense(1)(x))
    return model, keras.optimizers.Adam(1e-4), "mse"


def _transformer_arrays(random, rows):
    x = random.normal(size=(rows, 16, 64)).astype("float32")
    return x, x.mean(axis=(1, 2))[:, None]


def _lstm():
    import keras

    model = keras.Sequential([keras.Input((20, 16))])
    model.add(keras.layers.LSTM(32, return_sequences=True))
    model.add(keras.layers.LSTM(32))
    model.add(keras.layers.Dense(1))
    return model, keras.optimizers.RMSprop(1e-3), "mse"


def _lstm_arrays(random, rows):
    x = random.normal(size=(rows, 20, 16)).astype("float32")
    return x, x.mean(axis=(1, 2))[:, None]


WORKLOADS = {
    "deep_narrow": Workload(
        "51 dense layers of 32 units, Adam",
        64,
        _deep_narrow,
        _deep_narrow_arrays,
    ),
    "autoencoder": Workload(
        "3706-500-250-500-3706, sigmoid, RMSprop",
        250,
        _autoencoder,
        _autoencoder_arrays,
    ),
    "convnet": Workload(
        "3 convolutions on 32 x 32 x 3, SGD with momentum",
        128,
        _convnet,
        _convnet_arrays,
    ),
    "embeddings": Workload(
        "40 of 100,000 words, 32 units each, SGD",
        256,
        _embeddings,
        _embeddings_arrays,
    ),
    "resnet50": Workload(
        "ResNet-50 on 32 x 32 x 3, SGD",
        16,
        _resnet50,
        _convnet_arrays,
        is_in_pytorch=False,
    ),
    "transformer": Workload(
        "12 layers of 64 units on 16 tokens, Adam",
        32,
        _transformer,
        _transformer_arrays,
        is_in_pytorch=False,
    ),
    **{
        f"transformer_{number}": Workload(
            f"the same of {number} layers",
            32,
            functools.partial(_transformer, number),
            _transformer_arrays,
            is_in_pytorch=False,
        )
        for number in (24, 48)
    },
    "lstm": Workload(
        "2 LSTM layers of 32 units on 20 steps, RMSprop",
        64,
        _lstm,
        _lstm_arrays,
        is_in_pytorch=False,
    ),
}
"""`Workload`s by name."""


def start_weights(shapes):
    """Returns the initial weights of all contenders.

    Keras's backends draw different numbers from the same seed, so NumPy draws
    them: kernels by He et al. (arXiv:1502.01852, equation 10), biases 0.

    Args:
        shapes: Sequence of the shapes of a model's weights, in its order.

    Returns:
        List of float32 arrays.
    """
    random = np.random.default_rng(0)
    weights = []
    for shape in shapes:
        if len(shape) < 2:
            weights.append(np.zeros(shape, "float32"))
            continue
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        weights.append((random.normal(size=shape) * scale).astype("float32"))
    return weights
