"""Keras's own callbacks on workers that are not the first."""

import importlib.util
import os

import keras
import numpy as np
import pytest

from kerasmgpu._keras import writers
from kerasmgpu.job import workers
from tests.callbacks.checkpoints import runs


@pytest.fixture
def second_worker(monkeypatch):
    """Lets this process take itself for the second of two workers."""
    sent = writers._pack("a folder that is not there")
    monkeypatch.setattr(workers, "is_first", lambda strategy: False)
    monkeypatch.setattr(workers, "count", lambda strategy: 2)
    # Workers ask for the first one's own callbacks, of which it has none, by "".
    monkeypatch.setattr(
        workers, "broadcast", lambda _, data: sent if data else b"[]"
    )

    def first_worker_has(folder):
        nonlocal sent
        sent = writers._pack(folder)

    return first_worker_has


# Keras's TensorBoard callback can't be trained with where that is missing.
HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None


def callbacks(folder):
    listed = [
        keras.callbacks.CSVLogger(str(folder / "log.csv")),
        keras.callbacks.ModelCheckpoint(str(folder / "{epoch}.keras")),
        keras.callbacks.BackupAndRestore(
            str(folder / "backup"), delete_checkpoint=False
        ),
    ]
    if HAS_TENSORBOARD:
        listed.insert(0, keras.callbacks.TensorBoard(str(folder / "logs")))
    return listed


def fit(model, listed, epochs=1):
    return model.fit(
        **runs.arrays(), epochs=epochs, verbose=0, callbacks=listed
    )


def test_the_first_worker_writes_all(tmp_path, replicas):
    fit(runs.build(replicas(2), jit_compile=False), callbacks(tmp_path))
    names = {path.name for path in tmp_path.iterdir()}
    assert names - {"logs"} == {"log.csv", "1.keras", "backup"}


def test_other_workers_write_nothing(tmp_path, replicas, second_worker):
    listed = callbacks(tmp_path)
    model = runs.build(replicas(2), jit_compile=False)
    fit(model, listed)
    assert list(tmp_path.iterdir()) == []
    *_, csv, checkpoint, backup = listed
    assert csv.filename == str(tmp_path / "log.csv")
    assert checkpoint.filepath == str(tmp_path / "{epoch}.keras")
    assert backup._weights_path.startswith(str(tmp_path / "backup"))


def test_other_workers_restore_the_first_ones_backup(
    tmp_path, replicas, monkeypatch, request
):
    model = runs.build(replicas(2), jit_compile=False)
    *_, backup = callbacks(tmp_path)
    fit(model, [backup], epochs=2)
    request.getfixturevalue("second_worker")(str(tmp_path / "backup"))
    *_, backup = callbacks(tmp_path / "elsewhere")
    history = fit(
        runs.build(replicas(2), jit_compile=False), [backup], epochs=3
    )
    assert history.epoch == [2]


def test_a_save_that_fails_leaves_the_file_before(
    tmp_path, replicas, monkeypatch
):
    model = runs.build(replicas(2), jit_compile=False)
    path = tmp_path / "last.weights.h5"
    saver = keras.callbacks.ModelCheckpoint(str(path), save_weights_only=True)
    fit(model, [saver])
    before = path.read_bytes()
    replace = os.replace

    def full(source, target):
        assert os.path.dirname(source) == str(tmp_path / f".tmp-{path.name}")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        fit(model, [saver])
    monkeypatch.setattr(os, "replace", replace)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_sharded_weights_keep_their_names(tmp_path, replicas):
    model = runs.build(replicas(2))
    path = tmp_path / "last.weights.json"
    (tmp_path / f".tmp-{path.name}").mkdir()
    (tmp_path / f".tmp-{path.name}" / "left_by_a_killed_run").touch()
    model.save_weights(path, max_shard_size=1e-7)  # Some 100 bytes each.
    names = {entry.name for entry in tmp_path.iterdir()}
    assert {path.name, "last_00000.weights.h5"} < names
    assert all(name.startswith("last") for name in names)
    saved = model.get_weights()
    model.set_weights([np.zeros_like(array) for array in saved])
    model.load_weights(path)
    for before, after in zip(saved, model.get_weights()):
        np.testing.assert_array_equal(before, after)
