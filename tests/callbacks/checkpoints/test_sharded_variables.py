"""Runs with sharded variables go on under another setting of `shard`."""

import gc
import weakref

import keras
import numpy as np
import pytest

from kerasmgpu._keras import training_state
from kerasmgpu.callbacks import Checkpoint
from kerasmgpu.callbacks.checkpoints import restoring, stored
from kerasmgpu.callbacks.checkpoints.folder import Folder
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable
from tests.callbacks.checkpoints import runs
from tests.strategies.sharded import mirrored


def build(setting, optimizer=None):
    num_replicas, shard = setting
    strategy = mirrored(num_replicas, shard) if num_replicas > 1 else None
    return runs.build(strategy, optimizer, jit_compile=False)


@pytest.mark.nightly(but=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "before, after, is_exact",
    [
        ((3, "optimizer"), (3, "optimizer"), True),
        ((2, "weights"), (3, "weights"), False),
        ((3, "weights"), (2, "optimizer"), False),
        ((2, "optimizer"), (1, None), False),
        ((1, None), (3, "weights"), False),
    ],
)
def test_continues_in_the_middle_of_an_epoch(tmp_path, before, after, is_exact):
    """Bit for bit where setting and number of replicas are the same."""
    whole = build(before)
    expected = runs.train(whole, runs.shuffled(), tmp_path / "whole")
    runs.train(
        build(before),
        runs.shuffled(),
        tmp_path / "cut",
        break_at=(1, 3),
        every_steps=1,
    )
    model = build(after)
    history = runs.train(model, runs.shuffled(), tmp_path / "cut")
    if is_exact:
        runs.require_same(model, history, whole, expected)
        return
    assert history.epoch == expected.epoch
    for array, other in zip(runs.state(model), runs.state(whole), strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-4, atol=1e-5)
    for name, values in expected.history.items():
        np.testing.assert_allclose(history.history[name], values, rtol=1e-4)


@pytest.fixture
def on():
    """Builds a model in a setting of `build`, or on a mesh of some shape."""

    def built(setting):
        if setting[1:] and isinstance(setting[1], int):
            keras.distribution.set_distribution(runs.on_mesh(*setting))
            return runs.build(None, "adam", jit_compile=False)
        keras.distribution.set_distribution(None)
        return build(setting, "adam")  # Averages become weights at the end.

    yield built
    keras.distribution.set_distribution(None)


@pytest.mark.parametrize(
    "before", [(2, 2), pytest.param((3, "weights"), marks=pytest.mark.slow)]
)
def test_a_sharded_checkpoint_is_read_in_any_setting(tmp_path, on, before):
    """Each part is written once, and read under other shards and meshes."""
    model = on(before)
    data = runs.arrays() | {"steps_per_epoch": 2}
    runs.train(model, data, tmp_path, epochs=1, sharded=True)
    expected = runs.state(model)
    (folder,) = tmp_path.iterdir()
    with np.load(folder / "part-00000.npz") as arrays:
        elements = sum(arrays[name].size for name in arrays.files[:-1])
    assert elements == sum(array.size for array in expected)
    for after in [(2, 2), (4, 1), (1, 3), (3, "weights"), (1, None)]:
        state = runs.restored(on(after), tmp_path)
        for array, other in zip(state, expected, strict=True):
            np.testing.assert_array_equal(array, other)


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("asynchronous", [True, False])
def test_parts_are_copied_only_for_a_thread(
    tmp_path, asynchronous, monkeypatch
):
    copied, on_host = [], training_state._on_host

    def noting(variable):
        copied.append(tuple(variable.shape))
        return on_host(variable)

    monkeypatch.setattr(training_state, "_on_host", noting)
    model = build((3, "weights"), "adam")
    data = runs.arrays() | {"steps_per_epoch": 2}
    settings = {"sharded": True, "asynchronous": asynchronous}
    runs.train(model, data, tmp_path, epochs=1, **settings)
    parts = {
        tuple(part.shape)
        for variable in model.weights
        if isinstance(variable.value, ShardedVariable)
        for part in variable.value.parts
        if len(part.shape) == 2  # Whole seeds and a bias may be as long.
    }
    assert parts and asynchronous == bool(parts.intersection(copied))
    state = runs.restored(build((2, "weights"), "adam"), tmp_path)
    for array, other in zip(state, runs.state(model), strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize("shard", [None, "weights"])
def test_variables_are_read_one_after_the_other(tmp_path, shard, monkeypatch):
    """When one is read, at most the one before it is still alive.

    References are counted, not bytes: a variable on a CPU may take over the
    memory of the array that it is assigned.
    """
    strategy = mirrored(2, shard)
    with strategy.scope():
        model = keras.Sequential([keras.Input((100,))])
        for _ in range(6):
            model.add(keras.layers.Dense(100))
        model.compile("adam", "mse", run_eagerly=True)
    x = np.ones((2, 100), "float32")
    model.fit(x, x, verbose=0, callbacks=[Checkpoint(tmp_path)])
    state = runs.state(model)
    for variable in [*model.variables, *model.optimizer.variables]:
        variable.assign(np.zeros(variable.shape))

    read, alive = [], []
    original = stored.StoredArray.__getitem__

    def array(self, box):
        alive.append(sum(other() is not None for other in read))
        value = original(self, box)
        read.append(weakref.ref(value))
        return value

    found = restoring.newest(strategy, Folder(tmp_path, 3), resume=True)
    monkeypatch.setattr(stored.StoredArray, "__getitem__", array)
    gc.disable()  # Nothing may wait for the collector.
    try:
        found.restore_variables(model)
    finally:
        gc.enable()
    for value, expected in zip(runs.state(model), state, strict=True):
        np.testing.assert_array_equal(value, expected)
    assert len(alive) >= len(model.variables) > 10
    assert max(alive) <= 1, alive
