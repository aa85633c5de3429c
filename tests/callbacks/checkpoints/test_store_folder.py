"""Checkpoints in an object store whose operations fail, or are killed."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.callbacks.checkpoints import restoring, stored
from kerasmgpu.callbacks.checkpoints.folder import file_name
from kerasmgpu.callbacks.checkpoints.store_folder import COMMITTED, StoreFolder
from kerasmgpu.errors import InputError
from kerasmgpu.stores import store_path
from kerasmgpu.stores.store_path import StorePath
from tests.callbacks.checkpoints import runs, test_stored
from tests.callbacks.checkpoints.test_folder import fill, positions

faulty_store = pytest.importorskip("tests.faulty_store")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder in a store without faults, which are set by a test."""
    monkeypatch.setattr(store_path, "_WAITS", (0.0,) * 5)
    faulty_store.set_faults()
    yield StorePath(f"faulty://{tmp_path}/run")
    faulty_store.set_faults()


def newest(folder):
    return restoring.newest(tf.distribute.get_strategy(), folder, True)


def test_the_last_and_the_best_are_kept(place, tmp_path):
    folder = StoreFolder(place, keep=2)
    folder.prepare()
    best = file_name(0, 5)
    fill(folder, (0, 5), (1, 0), (1, 5), (10, 0), best=best)
    kept = [best, file_name(1, 5), file_name(10, 0)]
    assert positions(folder) == kept
    found = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert found == [*kept, COMMITTED]


@pytest.mark.parametrize(
    "is_sharded, count",
    [
        (False, 100),
        (True, 25),
        pytest.param(True, 100, marks=pytest.mark.slow),
    ],
)
def test_faults_at_random_moments_lose_no_checkpoint(place, is_sharded, count):
    """After each, the newest that was committed is found, whole."""
    chance = random.Random(3)
    lost = kills = 0
    most = 90 if is_sharded else 40  # Operations of a save, about.
    committed = 0  # The last one whose save has returned.
    for number in range(1, count + 1):
        folder = StoreFolder(place, keep=2)
        # A third is killed, most of them in the middle of a save.
        faulty_store.set_faults(
            failing=0.05,
            slow=0.05,
            late=chance.choice([0, 0.05]),
            kill_in=chance.randrange(most) if number % 3 == 0 else None,
            chance=chance,
        )
        name = file_name(number, 0, is_sharded)
        values = [value * number for value in test_stored.VALUES]
        try:
            folder.prepare()
            if is_sharded:
                test_stored.save(folder, number, values)
            else:
                shapes = [{"shape": list(value.shape)} for value in values]
                folder.write(name, {"variables": shapes}, values)
            committed = number
        except faulty_store.Killed:
            kills += 1
        faulty_store.set_faults(late=0.05, failing=0.05, chance=chance)
        found = newest(StoreFolder(place, keep=2))
        if found is None:
            assert committed == 0
            continue
        got = int(found.name.split("-")[1])
        lost += got != number
        # A save may be killed between its commit and its return.
        assert got in (committed, number)
        with stored.Stored(found.path) as checkpoint:
            for index, value in enumerate(test_stored.VALUES):
                array = checkpoint.array(index)[...]
                np.testing.assert_array_equal(array, value * got)
        committed = got
    # Of the third, those whose save had ended: it depends on the clock.
    assert kills > count / 12 and lost > count / 25
    faulty_store.set_faults()
    assert len(StoreFolder(place, keep=2).files()) <= 3


@pytest.mark.slow
def test_a_worker_killed_in_a_save_loses_nothing(place):
    """Processes, which are killed while others write."""
    test_stored.kill_in_saves(place, kills=12, make_folder=StoreFolder)


def test_a_listing_may_be_late(place):
    folder = StoreFolder(place, keep=1)
    fill(folder, (1, 0))
    faulty_store.set_faults(late=60)
    fill(folder, (2, 0))
    assert list(place.glob("checkpoint-*")) == [place / file_name(1, 0)]
    assert newest(StoreFolder(place, keep=1)).name == file_name(2, 0)


def test_a_file_that_is_not_of_the_listing_is_read_from_it(place):
    """Of a store that a killed save left without the newest name."""
    folder = StoreFolder(place, keep=2)
    fill(folder, (1, 0))
    (place / COMMITTED).write_bytes(b"{")
    assert positions(StoreFolder(place, keep=2)) == [file_name(1, 0)]


def test_a_put_that_fails_for_good_leaves_the_checkpoint_before(
    place, monkeypatch
):
    monkeypatch.setattr(store_path, "_WAITS", ())
    runs.train(runs.build_eager(), runs.arrays(), str(place), epochs=1)
    faulty_store.set_faults(always=("put_file",))
    with pytest.raises(InputError) as error:
        runs.train(runs.build_eager(), runs.arrays(), str(place), epochs=2)
    assert "503 Slow Down" in str(error.value)
    assert "earlier ones are intact" in str(error.value)
    faulty_store.set_faults()
    assert positions(StoreFolder(place, 3)) == [file_name(1, 0)]


def test_a_slow_put_does_not_hold_up_the_training(place):
    runs.train(runs.build_eager(), runs.arrays(), str(place), epochs=1)
    faults = faulty_store.set_faults(slow=1.0, seconds=1.0)
    counts = []

    class Count(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            counts.append(faults.done.count("put_file"))

    runs.train(
        runs.build_eager(),
        runs.arrays(),
        str(place),
        epochs=2,
        every_steps=4,
        callbacks=[Count()],
    )
    # A put is noted when it begins, and when it ends.
    assert counts[0] == 1 and faults.done.count("put_file") == 4


@pytest.mark.slow
@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_run_goes_on_where_it_was_broken_off(place, replicas, is_sharded):
    def build():
        if not is_sharded:
            return runs.build_eager()
        return runs.build(replicas(2), jit_compile=False)

    options = {"every_steps": 2, "sharded": is_sharded}
    whole = build()
    expected = runs.train(whole, runs.arrays())
    faulty_store.set_faults(failing=0.05)
    runs.train(build(), runs.arrays(), str(place), (1, 5), **options)
    model = build()
    history = runs.train(model, runs.arrays(), str(place), **options)
    runs.require_same(model, history, whole, expected)


def test_a_damaged_one_is_put_aside(place, tmp_path):
    folder = StoreFolder(place, keep=3)
    whole = test_stored.save(folder, 1)
    path = test_stored.save(folder, 2)
    (path / stored.part_name(1)).write_bytes(b"")
    assert newest(folder).name == whole.name
    assert positions(folder) == [whole.name]
    assert (tmp_path / "run" / f"damaged-{path.name}" / stored.INDEX).exists()
    # A file, too.
    fill(folder, (3, 0))
    (place / file_name(3, 0)).write_bytes(b"PK")
    assert newest(folder).name == whole.name
    assert (place / f"damaged-{file_name(3, 0)}").is_file()


def test_parts_without_an_index_are_removed_and_nothing_else(place):
    folder = StoreFolder(place, keep=3)
    name = file_name(1, 0, is_sharded=True)
    test_stored.write_part(folder, name, 0)
    (place / "notes.txt").write_bytes(b"mine")
    assert folder.files() == []
    folder.prepare()
    assert [path.name for path in place.iterdir()] == ["notes.txt"]


def test_a_store_that_can_not_be_written(place, monkeypatch):
    monkeypatch.setattr(store_path, "_WAITS", ())
    faulty_store.set_faults(always=("pipe_file",))
    with pytest.raises(InputError, match="can't be written.*503 Slow Down"):
        StoreFolder(place, keep=1).prepare()


def test_only_the_manifests_of_parts_are_read_to_commit_them(place):
    faults = faulty_store.FAULTS
    folder = StoreFolder(place, keep=3)
    path = test_stored.save(folder)
    assert "get_file" not in faults.done
    with stored.Stored(path, peek=True) as checkpoint:
        assert checkpoint.num_pieces(0) == 2
    assert "get_file" not in faults.done and "cat_file" in faults.done
