"""Any data set that `fit` takes: arrays, tf.data, PyDataset."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes import convnet
from kerasmgpu.recipes.convnet import input_data, yaml_sections

MODULE = """
import sys

import keras
import numpy as np
import tensorflow as tf

X = np.arange(14, dtype="float32").reshape(7, 2) / 14
Y = X[:, :1] - X[:, 1:] ** 2


def arrays():
    return X, Y


def keras_pairs():
    return (X, Y), (X[:3], Y[:3])


def parts():
    return {"training": (X, Y), "prediction": (X[:2],)}


def dataset():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(3)


def endless():
    return dataset().repeat()


def shuffled():
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(7).batch(7)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(3 * index, 3 * index + 3)
        return X[rows], Y[rows]


def inputs_by_name():
    return {"a": X, "b": X}, Y


def other_rows():
    return X, Y[:3]


def nothing():
    return None


def other_parts():
    return {"train": (X, Y)}


def net():
    return keras.Sequential([keras.layers.Dense(1)])
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "my_data.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_data", raising=False)


def load(name, training="{global_batch_size: 3, seed: 0}"):
    text = f"dataset:\n  class: my_data.{name}\ntraining: {training}"
    return input_data.load(yaml_sections.parse(text, "net.yaml"))


def test_arrays_are_shuffled_for_training_and_in_order_otherwise():
    data = load("keras_pairs")
    assert (data.steps_per_epoch, data.global_batch_size) == (3, 3)
    batches = [x for x, _ in data.training(0).take(3)]
    assert [len(x) for x in batches] == [3, 3, 1]
    seen = np.concatenate(batches)
    assert sorted(seen[:, 0]) == list(np.arange(7, dtype="float32") * 2 / 14)
    assert (seen[:, 0] != sorted(seen[:, 0])).any()
    # From the second step on: the same order, one batch less.
    np.testing.assert_array_equal(next(iter(data.training(1)))[0], batches[1])
    (rows,) = [x for x, _ in data.validation]
    np.testing.assert_allclose(rows[:, 0], [0, 2 / 14, 4 / 14])


def test_what_is_predicted():
    for name, part, rows in (
        ("arrays", "training", 7),
        ("keras_pairs", "validation", 3),
        ("parts", "prediction", 2),
    ):
        data, found = load(name).prediction
        assert found == part
        assert sum(len(batch[0]) for batch in data) == rows
    assert load("arrays").validation is None


def test_inputs_are_shapes_without_rows():
    assert load("arrays").inputs.shape == (None, 2)
    inputs = load("inputs_by_name").inputs
    assert {name: leaf.shape for name, leaf in inputs.items()} == {
        "a": (None, 2),
        "b": (None, 2),
    }


@pytest.mark.parametrize("name", ["dataset", "Batches"])
def test_data_sets_make_their_own_batches(name):
    data = load(name, "{seed: 0}")
    assert (data.steps_per_epoch, data.global_batch_size) == (3, 3)
    assert data.inputs.shape == (None, 2)


def test_a_data_set_shuffles_with_the_configured_seed():
    def order(seed):
        tf.random.uniform([])  # Whatever was drawn before.
        (batch,) = load("shuffled", f"{{seed: {seed}}}").training(0)
        return list(batch[0][:, 0].numpy())

    assert order(0) == order(0)
    assert order(0) != order(1)


@pytest.mark.parametrize(
    "name, training, message",
    [
        ("arrays", "{seed: 0}", "training.global_batch_size is missing"),
        (
            "dataset",
            "{seed: 0, global_batch_size: 3}",
            "line 3: training.global_batch_size must be left out",
        ),
        ("endless", "{seed: 0}", "steps_per_epoch is missing"),
        ("other_rows", None, r"same rows, .* \(7, 2\), \(3, 1\) as training"),
        ("nothing", None, "must return arrays .* NoneType as training"),
        ("other_parts", None, "must return a dictionary .* Received: train$"),
    ],
)
def test_data_that_cannot_be_used(name, training, message):
    with pytest.raises(InputError, match=message):
        load(name, training or "{global_batch_size: 3, seed: 0}")


def test_predictions_of_endless_data_are_refused():
    data = load("endless", "{seed: 0, steps_per_epoch: 3}")
    with pytest.raises(InputError, match="the training data are endless"):
        _ = data.prediction


@pytest.mark.parametrize(
    "name",
    [
        "arrays",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("dataset", "endless", "Batches")
        ),
    ],
)
def test_a_run_on_every_kind_ends_with_predictions_in_order(name, tmp_path):
    training = {
        "arrays": "{epochs: 2, global_batch_size: 3}",
        "endless": "{epochs: 2, steps_per_epoch: 3}",
    }.get(name, "{epochs: 2}")
    path = tmp_path / "net.yaml"
    path.write_text(
        f"model: {{class: my_data.net, n_gpus: 2}}\n"
        f"dataset: {{class: my_data.{name}}}\n"
        "loss: {class: keras.losses.MeanSquaredError}\n"
        "optimizer: {class: keras.optimizers.SGD, learning_rate: 1e-2}\n"
        f"training: {training}\n"
    )
    predictions = tmp_path / "predictions.csv"
    result = convnet.run(
        config=str(path),
        virtual_devices=2,
        output_dir=str(tmp_path / "run"),
        predictions=None if name == "endless" else str(predictions),
    )
    assert (result.steps, result.global_batch_size) == (6, 3)
    if name == "endless":
        return
    model = keras.models.load_model(tmp_path / "run" / "model.keras")
    x = tf.reshape(tf.range(14, dtype="float32"), (7, 2)) / 14
    np.testing.assert_allclose(
        np.loadtxt(predictions), np.ravel(model(x)), rtol=1e-6, atol=1e-7
    )
