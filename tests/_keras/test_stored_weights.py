"""Files of Keras are read part by part, and never held in memory."""

import tracemalloc
import zipfile

import h5py
import keras
import numpy as np
import pytest

from kerasmgpu._keras import stored_weights
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable
from tests.strategies.sharded import mirrored

UNITS = 360
VARIABLE = UNITS * UNITS * 4
"""Bytes of a layer's kernel, 0.5 MB."""


def network(dtype="float32"):
    model = keras.Sequential(
        [keras.Input((UNITS,))]
        + [keras.layers.Dense(UNITS, dtype=dtype) for _ in range(6)]
    )
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of a model of one device by name, and the model."""
    folder = tmp_path_factory.mktemp("files")
    model = network()
    for variable in model.optimizer.variables[2:]:
        variable.assign(np.random.default_rng(1).normal(size=variable.shape))
    model.save(folder / "model.keras")
    model.save_weights(folder / "one.weights.h5")
    model.save_weights(folder / "two.weights.json", max_shard_size=0.002)
    return folder, model


@pytest.fixture
def mapped(monkeypatch):
    """Shapes of the arrays that parts are read from."""
    shapes, assign = [], ShardedVariable.assign_from

    def noting(self, array):
        assert isinstance(array, np.memmap)
        shapes.append(array.shape)
        assign(self, array)

    monkeypatch.setattr(ShardedVariable, "assign_from", noting)
    return shapes


def in_strategy(axis=True, dtype="float32"):
    def shard(variable):
        return axis if len(variable.shape) == 2 else False

    with mirrored(3, shard).scope():
        return network(dtype)


def assert_equal(model, expected):
    both = zip(
        model.weights + model.optimizer.variables,
        expected.weights + expected.optimizer.variables,
        strict=True,
    )
    for one, other in both:
        np.testing.assert_array_equal(one, other, one.path)


@pytest.mark.parametrize(
    "name, axis",
    [("model.keras", 0), ("one.weights.h5", 1), ("two.weights.json", 0)],
)
def test_parts_are_read_from_the_file(name, axis, files, mapped):
    folder, _ = files
    expected = network()
    expected.load_weights(folder / name)
    model = in_strategy(axis)
    model.load_weights(folder / name)
    assert_equal(model, expected)
    # Weights, and Adam's slots; Keras 3.10 leaves those out of several files.
    assert mapped in (18 * [(UNITS, UNITS)], 6 * [(UNITS, UNITS)])


def test_variables_keep_their_values_when_the_file_changes(files, tmp_path):
    folder, expected = files
    path = tmp_path / "one.weights.h5"
    path.write_bytes((folder / path.name).read_bytes())
    model = in_strategy()
    model.load_weights(path)
    with open(path, "r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert_equal(model, expected)


def test_a_model_is_loaded_and_saved_without_its_file_in_memory(
    files, mapped, tmp_path
):
    folder, expected = files
    with mirrored(2, "weights").scope():
        keras.saving.load_model(
            folder / "model.keras"
        )  # Imports what it needs.
        del mapped[:]
        tracemalloc.start()
        model = keras.saving.load_model(folder / "model.keras")
        loading = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    model.save(tmp_path / "model.keras")
    saving = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert_equal(model, expected)
    assert mapped == 18 * [(UNITS, UNITS)]
    assert loading < (18 + 2.5) * VARIABLE  # The state, and one variable.
    assert saving < (18 + 4) * VARIABLE
    assert_equal(keras.saving.load_model(tmp_path / "model.keras"), expected)
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]


@pytest.mark.slow
def test_other_formats_are_read_whole(files, mapped, tmp_path):
    folder, expected = files
    with zipfile.ZipFile(folder / "model.keras") as archive:
        with zipfile.ZipFile(
            tmp_path / "deflated.keras", "w", zipfile.ZIP_DEFLATED
        ) as deflated:
            for name in archive.namelist():
                deflated.writestr(name, archive.read(name))
    model = in_strategy()
    model.load_weights(tmp_path / "deflated.keras")
    assert_equal(model, expected)

    def compress(name, dataset):
        if isinstance(dataset, h5py.Dataset) and dataset.ndim:
            compressed.create_dataset(name, data=dataset[()], compression=1)
        elif isinstance(dataset, h5py.Dataset):
            compressed[name] = dataset[()]
        else:
            compressed.require_group(name).attrs.update(dataset.attrs)

    with h5py.File(folder / "one.weights.h5") as file:
        with h5py.File(tmp_path / "compressed.weights.h5", "w") as compressed:
            file.visititems(compress)
    model = in_strategy()
    model.load_weights(tmp_path / "compressed.weights.h5")
    assert_equal(model, expected)
    narrow = network("bfloat16")
    narrow.save_weights(tmp_path / "narrow.weights.h5")
    model = in_strategy(dtype="bfloat16")
    model.load_weights(tmp_path / "narrow.weights.h5")
    assert_equal(model, narrow)
    assert not mapped


def test_types_are_converted_and_shapes_compared(files, mapped, tmp_path):
    folder, expected = files
    model = in_strategy(dtype="float64")
    model.load_weights(folder / "one.weights.h5")
    for one, other in zip(model.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    with mirrored(2, "weights").scope():
        model = keras.Sequential([keras.Input((UNITS,))])
        for _ in range(6):
            model.add(keras.layers.Dense(UNITS - 1))
    with pytest.raises(ValueError, match="mismatch|must match"):
        model.load_weights(folder / "one.weights.h5")
    assert not mapped


def test_a_member_of_an_archive_is_a_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("other", b"x" * 100)
        archive.writestr("member", bytes(range(200)))
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        member = stored_weights._member(archive, "member")
        assert stored_weights._member(archive, "other").read() == b"x" * 100
    assert member.read() == bytes(range(200)) and member.read() == b""
    assert member.seek(-3, 2) == 197 and member.read(9) == bytes(
        [197, 198, 199]
    )
    assert member.seek(7) == 7 and member.seek(3, 1) == 10
    assert member.read(2) == bytes([10, 11]) and member.tell() == 12
