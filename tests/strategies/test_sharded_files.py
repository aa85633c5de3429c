"""Sharded weights are read, saved, loaded and exported whole."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.strategies.sharded import mirrored

ROWS = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")
TARGETS = ROWS[:, :2]

SETTINGS = {
    "one device": lambda: None,
    "weights of 2": lambda: mirrored(2, "weights"),
    "weights of 3": lambda: mirrored(3, "weights"),
    "optimizer of 2": lambda: mirrored(2, "optimizer"),
    "mirrored on 2": lambda: mirrored(2, None),
}

FROM_ONE_TO_ANOTHER = [
    ("weights of 2", "one device", "model.save"),
    ("one device", "weights of 3", "tf.train.Checkpoint"),
    ("weights of 3", "weights of 2", "model.save"),
    ("weights of 3", "weights of 2", "tf.train.Checkpoint"),
    ("optimizer of 2", "weights of 3", "model.save"),
    ("weights of 2", "mirrored on 2", "tf.train.Checkpoint"),
]


def build(setting, seed=1):
    """A compiled model of a setting of `SETTINGS`."""
    strategy = SETTINGS[setting]()
    keras.utils.set_random_seed(seed)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(5, "tanh"),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(2),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse")
        model.optimizer.build(model.trainable_variables)
    return model


def fit(model, epochs=1, **keywords):
    return model.fit(
        ROWS,
        TARGETS,
        batch_size=5,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        **keywords,
    )


def state(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [variable.numpy() for variable in variables]


def assert_same(model, expected, **tolerance):
    for own, array in zip(state(model), expected, strict=True):
        np.testing.assert_allclose(own, array, **{"rtol": 0, **tolerance})


@pytest.fixture(scope="module")
def trained():
    """A model with sharded weights after an epoch, and its state."""
    model = build("weights of 3")
    fit(model)
    return model, state(model)


# Reading ----------------------------------------------------------------------


def test_values_are_whole(trained):
    model, _ = trained
    kernel = model.layers[0].kernel
    assert len(kernel.value.parts) == 3
    whole = np.concatenate([p.numpy() for p in kernel.value.parts], 1)
    assert whole.shape == (4, 5)
    variable = kernel.value
    for value in (
        kernel.numpy(),
        np.array(kernel),
        keras.ops.convert_to_numpy(kernel),
        model.get_weights()[0],
        model.layers[0].get_weights()[0],
        variable.numpy(),
        variable.value().numpy(),
        variable.read_value().numpy(),
        np.asarray(variable),
        tf.convert_to_tensor(variable).numpy(),
        tf.identity(variable).numpy(),
        variable[:].numpy(),
        (variable + 0).numpy(),
    ):
        np.testing.assert_array_equal(value, whole)
    assert tuple(variable.shape) == (4, 5)
    np.testing.assert_array_equal(
        variable.sparse_read([2, 0]).numpy(), whole[[2, 0]]
    )
    np.testing.assert_array_equal(
        variable.gather_nd([[2, 1]]).numpy(), whole[2:3, 1]
    )


def test_reading_in_a_tf_function(trained):
    kernel = trained[0].layers[0].kernel.value
    np.testing.assert_array_equal(
        tf.function(lambda: kernel * 2)().numpy(), kernel.numpy() * 2
    )


def test_gradients_outside_of_a_step(trained):
    kernel = trained[0].layers[0].kernel
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(kernel.value**2)
    np.testing.assert_allclose(
        tape.gradient(loss, kernel.value), 2 * kernel.numpy()
    )


@pytest.mark.parametrize("setting", ["weights of 2", "weights of 3"])
def test_assigning(setting):
    model = build(setting)
    kernel = model.layers[0].kernel
    values = np.arange(20, dtype="float32").reshape(4, 5)
    kernel.assign(values)
    np.testing.assert_array_equal(kernel.numpy(), values)
    kernel.assign_add(values)
    kernel.assign_sub(values * 0.5)
    np.testing.assert_array_equal(kernel.numpy(), values * 1.5)
    kernel.value[1:3, 0].assign([7.0, 8.0])
    kernel.value.scatter_nd_add([[0, 4]], [1.5])
    kernel.value.scatter_update(tf.IndexedSlices(tf.zeros([1, 5]), [3]))
    expected = values * 1.5
    expected[1:3, 0], expected[3] = [7, 8], 0
    expected[0, 4] += 1.5
    np.testing.assert_array_equal(kernel.numpy(), expected)
    with pytest.raises(ValueError, match="hape"):
        kernel.value.assign(np.zeros([4, 6], "float32"))


def test_set_weights(trained):
    _, expected = trained
    model = build("weights of 2", seed=2)
    model.set_weights(expected[: len(model.weights)])
    for own, array in zip(model.get_weights(), expected):
        np.testing.assert_array_equal(own, array)
    assert hasattr(model.layers[0].kernel.value, "parts")


# Files ------------------------------------------------------------------------


def save_whole_model(model, folder):
    model.save(folder / "model.keras")

    def restore(other, strategy):
        with strategy.scope() if strategy else contextlib.nullcontext():
            return keras.models.load_model(folder / "model.keras")

    return restore


def save_checkpoint(model, folder):
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(
        str(folder / "checkpoint")
    )

    def restore(other, strategy):
        checkpoint = tf.train.Checkpoint(model=other, optimizer=other.optimizer)
        checkpoint.read(path).assert_consumed()
        return other

    return restore


WAYS = {"model.save": save_whole_model, "tf.train.Checkpoint": save_checkpoint}


@pytest.mark.nightly(but=2)
@pytest.mark.parametrize("before, after, way", FROM_ONE_TO_ANOTHER)
def test_state_is_restored_under_another_setting(tmp_path, before, after, way):
    first = build(before)
    fit(first)
    restore = WAYS[way](first, tmp_path)
    strategy = SETTINGS[after]()
    keras.utils.set_random_seed(2)
    other = build(after, seed=2)
    model = restore(other, strategy)
    assert_same(model, state(first))
    has_parts = hasattr(model.layers[0].kernel.value, "parts")
    assert has_parts == after.startswith("weights")
    fit(first)
    fit(model)
    assert_same(model, state(first), atol=1e-6)


@pytest.mark.parametrize("before, after, _", FROM_ONE_TO_ANOTHER[:3])
def test_files_of_weights(tmp_path, before, after, _):
    first, model = build(before), build(after, seed=2)
    random = np.random.default_rng(0)
    first.set_weights([random.normal(size=w.shape) for w in first.weights])
    first.save_weights(tmp_path / "model.weights.h5")
    model.load_weights(tmp_path / "model.weights.h5")
    for own, array in zip(model.get_weights(), first.get_weights()):
        np.testing.assert_array_equal(own, array)


@pytest.mark.slow
def test_an_exported_model_predicts_alike(tmp_path, trained):
    model, _ = trained
    model.export(tmp_path / "model", verbose=False)
    exported = tf.saved_model.load(tmp_path / "model")
    np.testing.assert_allclose(
        exported.serve(ROWS), model.predict(ROWS, verbose=0), atol=1e-6
    )


def test_a_clone_and_a_copy_of_weights(trained):
    model, _ = trained
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_allclose(
        clone.predict(ROWS, verbose=0),
        model.predict(ROWS, verbose=0),
        atol=1e-6,
    )


# Callbacks --------------------------------------------------------------------


@pytest.mark.slow
def test_model_checkpoint(tmp_path):
    path = str(tmp_path / "{epoch}.keras")
    model = build("weights of 2")
    fit(model, 2, callbacks=[keras.callbacks.ModelCheckpoint(path)])
    first = keras.models.load_model(path.format(epoch=1))
    last = keras.models.load_model(path.format(epoch=2))
    assert_same(model, state(last))
    assert (first.get_weights()[0] != last.get_weights()[0]).any()


class Broken(Exception):
    """Stands for the kill of a run."""


class Break(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise Broken


@pytest.fixture(scope="module")
def whole():
    """State and losses of a run that was not cut."""
    model = build("weights of 2")
    losses = fit(model, 4).history["loss"]
    return state(model), losses


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("after", ["weights of 2", "weights of 3"])
def test_backup_and_restore(tmp_path, whole, after):
    cut, resumed = build("weights of 2"), build(after)

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    weights, expected = whole
    with pytest.raises(Broken):
        fit(cut, 4, callbacks=[backup(), Break()])
    history = fit(resumed, 4, callbacks=[backup()]).history["loss"]
    if after == "weights of 2":
        assert_same(resumed, weights)
        assert history == expected[2:]
    else:
        assert_same(resumed, weights, atol=1e-6)
        np.testing.assert_allclose(history, expected[2:], rtol=1e-5)
