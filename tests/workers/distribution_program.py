"""A case of `shared_program`: data that programs of `keras.distribution` feed.

The argument is a key of `DISTRIBUTIONS`, `FOUND` or `THREE_BY_TWO`.
"""

import atexit
import contextlib
import os
import shutil
import tempfile

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu
from kerasmgpu import cluster

ROWS, BATCH = 11, 4
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, 5)).astype("float32")
Y = RANDOM.normal(size=(ROWS, 1)).astype("float32")


def run(strategy, name, _):
    """Returns what `trained` returns, an error, and what the layers cost.

    The error is that of the rows of a worker on a mesh that divides no rows.
    """
    strategy()
    if name == FOUND:
        return with_found_layout(kerasmgpu.strategy(mesh=(1, 2), layout="auto"))
    if name == THREE_BY_TWO:
        return on_three_by_two(kerasmgpu.strategy(mesh=(3, 2), layout=LAYOUT))
    if name == TOKENS:
        return [
            on_tokens(kerasmgpu.strategy(mesh=shape, layout=layout))
            for shape, layout in DIVIDES_TOKENS.items()
        ]
    if name == IMAGES:
        return [
            on_images(kerasmgpu.strategy(mesh=shape, layout=layout))
            for shape, layout in DIVIDES_IMAGES.items()
        ]
    distribution = DISTRIBUTIONS[name](keras.distribution.list_devices())
    costs = layer_costs(distribution)
    if name == "data":
        return trained(distribution, KINDS), "", costs
    found = trained(distribution, [kind for kind in KINDS if kind != SHARDED])
    try:
        weights(distribution, SHARDED)
    except kerasmgpu.InputError as error:
        return found, str(error), costs


def data_parallel(devices):
    return keras.distribution.DataParallel(
        devices=devices, auto_shard_dataset=False
    )


def model_parallel(devices):
    mesh = keras.distribution.DeviceMesh(
        (1, len(devices)), ("batch", "model"), devices
    )
    layouts = keras.distribution.LayoutMap(mesh)
    layouts["hidden/kernel"] = (None, "model")
    return keras.distribution.ModelParallel(layout_map=layouts)


DISTRIBUTIONS = {"data": data_parallel, "model": model_parallel}


FOUND = "found"
"""Name of the case in which the layout is found, by the first worker."""


THREE_BY_TWO = "3 by 2"
"""Name of the case in which the layout's axis lies between two workers."""

LAYOUT = {"hidden/kernel": (None, "model"), "end/kernel": ("model", "batch")}


def on_three_by_two(strategy):
    """Weights of a model, and the shapes of this process's parts of them."""
    with strategy.scope():
        model = built()
    model.fit(X, Y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    parts = {
        weight.path: [tuple(part.shape) for part in weight.value.parts]
        for weight in model.weights
        if hasattr(weight.value, "parts")
    }
    return model.get_weights(), parts


TOKENS = "tokens"

DIVIDES_TOKENS = {
    (1, 4): {"tokens/output": (None, "model")},
    (2, 2): {"tokens/output": ("batch", "model")},
}
"""Layouts of meshes."""


def on_tokens(strategy):
    """Weights of models that attend to 6 tokens, and to 5 and 1 in turn."""
    of_lengths = [attending(strategy, lengths) for lengths in ((6, 6), (5, 1))]
    return sum(of_lengths, [])


def attending(strategy, lengths):
    """Weights of a model that attends to as many tokens in batches in turn.

    Four devices attend to one head each.
    """
    length = lengths[0] if len(set(lengths)) == 1 else None
    keras.utils.set_random_seed(2)
    with strategy.scope():
        tokens = keras.Input((length,), dtype="int32", name="tokens")
        x = keras.layers.Embedding(9, 8)(tokens)
        attend = keras.layers.MultiHeadAttention(4, 2, dropout=0.1, seed=3)
        x = keras.layers.Dense(9)(x + attend(x, x, use_causal_mask=True))
        model = keras.Model(tokens, x)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)
    random = np.random.default_rng(1)
    sizes = zip((4, 3), lengths)
    batches = [2 * (random.integers(0, 9, size),) for size in sizes]
    words = tf.data.Dataset.from_generator(
        lambda: batches,
        output_signature=2 * (tf.TensorSpec((None, length), "int64"),),
    )
    model.fit(words, epochs=2, verbose=0)
    return model.get_weights()


IMAGES = "images"

DIVIDES_IMAGES = {
    (1, 4): {"images/output": (None, "model")},
    (2, 2): {"images/output": ("batch", "model")},
    (4, 1): {"images/output": (None, "batch")},
}
"""Layouts of meshes."""


def on_images(strategy):
    """Weights of convolutions of images of 9 rows, with a halo of 2 rows."""
    keras.utils.set_random_seed(2)
    with strategy.scope():
        x = images = keras.Input((9, 4, 2), name="images")
        x = keras.layers.Conv2D(3, 5, padding="same", activation="relu")(x)
        x = keras.layers.MaxPooling2D(3, 2, padding="same")(x)
        x = keras.layers.Conv2DTranspose(1, 3, strides=2, padding="same")(x)
        model = keras.Model(images, x)
        model.compile(keras.optimizers.SGD(0.1), "mse")
    random = np.random.default_rng(1)
    x, y = (random.normal(size=(7, n, 4, c)) for n, c in ((9, 2), (10, 1)))
    model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return model.get_weights()


def with_found_layout(strategy):
    """Weights of a model whose layout is found, and the layout's keys."""
    with strategy.scope():
        model = built()
    model.fit(X, Y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    found = strategy.found_layout
    return model.get_weights(), found and found.layouts


def trained(distribution, kinds):
    """Returns the weights by the kind of data, some of `KINDS`."""
    return {kind: weights(distribution, kind) for kind in kinds}


def weights(distribution, kind):
    """Weights of a model that is trained for two epochs in a distribution."""
    with scope(distribution):
        model = built()
        model.fit(**KINDS[kind](distribution), epochs=2, verbose=0)
        return model.get_weights()


def layer_costs(distribution):
    """What each layer of a model costs, without the workers' agreements."""
    with scope(distribution):
        report = kerasmgpu.layout_report(built(), (X, Y))
    return [
        (one.name, one.weights, one.slots, one.sent["all_reduce"])
        for one in report.layers
    ]


def scope(distribution):
    if distribution is None:
        return contextlib.nullcontext()
    return distribution.scope()


def built():
    keras.utils.set_random_seed(3)
    inputs = keras.Input((5,))
    hidden = keras.layers.Dense(7, "tanh", name="hidden")(inputs)
    outputs = keras.layers.Dense(1, name="end")(hidden)
    model = keras.Model(inputs, outputs, name="model")
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    return model


def batches():
    for start in range(0, ROWS, BATCH):
        yield X[start : start + BATCH], Y[start : start + BATCH]


class Sequence(keras.utils.PyDataset):
    def __len__(self):
        return -(-ROWS // BATCH)

    def __getitem__(self, index):
        return list(batches())[index]


def generator():
    while True:
        yield from batches()


def dataset():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)


def of_files():
    """Batches of the rows of three files, one file after the other."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    paths = [os.path.join(folder, str(index)) for index in range(3)]
    parts = np.split(np.concatenate([X, Y], 1), [2, 7])
    for path, part in zip(paths, parts):
        np.savetxt(path, part)
    return tf.data.TextLineDataset(paths).map(row_of).batch(BATCH)


def row_of(line):
    values = tf.strings.to_number(tf.strings.split(line))
    return tf.ensure_shape(values[:5], [5]), tf.ensure_shape(values[5:], [1])


def sharded_by_hand(distribution):
    """The shard of this process, as Keras numbers them."""
    shards, shard = 1, 0
    if distribution is not None:
        shards, shard = distribution.num_processes, distribution.data_shard_id
    rows = dataset().unbatch().shard(shards, shard)
    return rows.batch(BATCH // shards)


def sharded_by_worker(_):
    """The rows of this worker, said to be sharded already."""
    worker = cluster.from_environment()
    shards, shard = (worker.num_workers, worker.index) if worker else (1, 0)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    rows = dataset().unbatch().shard(shards, shard)
    return rows.batch(BATCH).with_options(options)


def distributed_by_hand(distribution):
    if distribution is None:
        return dataset()
    return distribution.distribute_dataset(dataset())


SHARDED = "sharded by worker"
KINDS = {
    "arrays": lambda _: {"x": X, "y": Y, "batch_size": BATCH},
    "a data set": lambda _: {"x": dataset()},
    "files": lambda _: {"x": of_files()},
    "a generator": lambda _: {"x": generator(), "steps_per_epoch": 3},
    "a PyDataset": lambda _: {"x": Sequence()},
    "sharded by hand": lambda one: {"x": sharded_by_hand(one)},
    SHARDED: lambda one: {"x": sharded_by_worker(one)},
    "distributed by hand": lambda one: {"x": distributed_by_hand(one)},
}
