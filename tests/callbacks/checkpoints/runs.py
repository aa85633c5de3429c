"""Short runs that are broken off and continued, for tests of checkpoints."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu
from kerasmgpu.callbacks.checkpoints import folder, restoring

ROWS = np.random.default_rng(0).normal(size=(23, 4)).astype("float32")
TARGETS = ROWS[:, :2] * 2 + 1
HELD_OUT = ROWS[:6], TARGETS[:6]


class Broken(Exception):
    """Stands for the kill of a run."""


class Break(keras.callbacks.Callback):
    """Raises `Broken` when a step of an epoch has ended, as a kill would."""

    def __init__(self, epoch, step):
        super().__init__()
        self.at = epoch, step

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (self._epoch, batch) >= self.at:
            raise Broken


def build(strategy=None, optimizer=None, **compile_arguments):
    """A tiny model with dropout and batch normalisation, seeded."""
    keras.utils.set_random_seed(7)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(5, activation="tanh"),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.3),
                keras.layers.Dense(2),
            ]
        )
        model.compile(
            optimizer or keras.optimizers.Adam(0.01, use_ema=True),
            "mse",
            metrics=["mae"],
            **compile_arguments,
        )
    return model


def on_mesh(*shape):
    """A `ModelParallel` on so many devices, with shards of uneven sizes."""
    devices = keras.distribution.list_devices()[: int(np.prod(shape))]
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*dense.*/kernel"] = ("batch", "model")
    layouts[".*dense.*/bias"] = ("model",)
    return keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="batch"
    )


def build_eager():
    """One layer whose steps are quick, since nothing is traced."""
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=True)
    return model


def arrays():
    return {"x": ROWS, "y": TARGETS, "batch_size": 4}


def dataset():
    return tf.data.Dataset.from_tensor_slices((ROWS, TARGETS))


def shuffled():
    return {"x": dataset().shuffle(23, seed=3).batch(4)}


def unknown_length():
    filtered = dataset().shuffle(23, seed=3).filter(lambda x, y: x[0] < 9)
    return {"x": filtered.batch(4)}


def shuffled_twice():
    return {"x": dataset().shuffle(23, seed=3).repeat(2).batch(4)}


def repeated():
    return {
        "x": dataset().shuffle(23, seed=3).repeat().batch(4),
        "steps_per_epoch": 6,
    }


def counting():
    """A data set whose function counts the rows in a variable."""
    count = tf.Variable(0.0)
    return {
        "x": dataset()
        .map(lambda x, y: (x + count.assign_add(0.01), y))
        .batch(4)
    }


def cached():
    return {"x": dataset().shuffle(23, seed=3).cache().batch(4)}


def generator():
    # A generator of its own: the thread that reads ahead for a run that was
    # broken off in this process would draw from NumPy's after the next began.
    random = np.random.default_rng(5)

    def batches():
        while True:
            rows = random.permutation(23)[:4]
            yield ROWS[rows], TARGETS[rows]

    return {"x": batches(), "steps_per_epoch": 6}


class Batches(keras.utils.PyDataset):
    """Batches in an order that changes at the end of every epoch."""

    def __init__(self):
        super().__init__()
        self._order = np.arange(23)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        rows = self._order[index * 4 : index * 4 + 4]
        return ROWS[rows], TARGETS[rows]

    def on_epoch_end(self):
        np.random.shuffle(self._order)


def py_dataset():
    return {"x": Batches(), "shuffle": True}


def train(model, data, directory=None, break_at=None, epochs=3, **keywords):
    """Fits; returns the `History`, or `None` if the run was broken off."""
    options = {
        name: keywords.pop(name)
        for name in (
            "every_steps",
            "every_seconds",
            "keep",
            "best",
            "mode",
            "resume",
            "asynchronous",
            "sharded",
        )
        if name in keywords
    }
    callbacks = keywords.pop("callbacks", [])
    if directory is not None:
        callbacks = [
            kerasmgpu.callbacks.Checkpoint(directory, **options),
            *callbacks,
        ]
    if break_at is not None:
        callbacks = [Break(*break_at), *callbacks]
    try:
        return model.fit(
            **data, epochs=epochs, verbose=0, callbacks=callbacks, **keywords
        )
    except Broken:
        return None


def go_back(directory, *position):
    """Deletes the checkpoints that are newer than an epoch and step."""
    newest = folder.file_name(*position)
    for path in directory.iterdir():
        if path.name > newest:
            path.unlink()
    assert (directory / newest).exists()


def restored(model, directory, name=None):
    """Restores the newest checkpoint into a model; returns its state."""
    found = restoring.newest(
        model.distribute_strategy, folder.Folder(directory, 3), resume=True
    )
    assert name in (None, found.name)
    found.restore_variables(model)
    return state(model)


def state(model):
    """All variables of a model and its optimizer, as arrays."""
    return [
        variable.numpy()
        for variable in [*model.variables, *model.optimizer.variables]
    ]


def require_same(model, history, expected_model, expected_history):
    """Raises unless two runs agree bit for bit."""
    assert history.epoch == expected_history.epoch
    assert history.history == expected_history.history
    for array, expected in zip(state(model), state(expected_model)):
        np.testing.assert_array_equal(array, expected)
