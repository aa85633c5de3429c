"""Sharded checkpoints on disk: pieces, damage, and kills in a save."""

import itertools
import multiprocessing
import os
import random
import signal
import time

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.callbacks.checkpoints import file_format, restoring, stored
from kerasmgpu.callbacks.checkpoints.folder import Folder, file_name

RANDOM = np.random.default_rng(0)
VALUES = [
    RANDOM.normal(size=(7, 5)).astype("float32"),
    RANDOM.normal(size=(4, 3, 6)).astype(ml_dtypes.bfloat16),
    np.array(3, "int64"),
]
PLACES = [  # Of each variable, by worker: in parts along one axis, or two.
    [(slice(0, 4), slice(0, 5)), (slice(4, 7), slice(0, 5))],
    [
        (slice(0, 4), slice(0, 2), slice(3, 6)),
        (slice(0, 4), slice(2, 3), slice(0, 6)),
        (slice(0, 4), slice(0, 2), slice(0, 3)),
    ],
    [()],
]


def write_part(folder, name, worker, values=VALUES):
    pieces, arrays = [], []
    for variable, places in enumerate(PLACES):
        for box in places[worker : worker + 1]:
            arrays.append(np.asarray(values[variable][box]))
            start = [one.start for one in box]
            pieces.append((variable, start, arrays[-1].shape))
    folder.write_part(name, worker, pieces, arrays)


def commit(folder, name):
    shapes = [{"shape": list(value.shape)} for value in VALUES]
    folder.commit(name, 3, {"variables": shapes}, [np.ones(2)])


def save(folder, epoch=1, values=VALUES):
    """Writes a checkpoint of three workers; returns its path."""
    name = file_name(epoch, 0, is_sharded=True)
    for worker in range(3):
        write_part(folder, name, worker, values)
    commit(folder, name)
    return folder.path / name


def newest(folder):
    return restoring.newest(tf.distribute.get_strategy(), folder, True)


@pytest.mark.parametrize("block", [1, 64, 1 << 20])
def test_any_box_is_read_as_it_was(tmp_path, monkeypatch, block):
    """In blocks of less than a row, some rows, and more than all."""
    monkeypatch.setattr(file_format, "_BLOCK", block)
    with stored.Stored(save(Folder(tmp_path, 3))) as checkpoint:
        for index, value in enumerate(VALUES):
            array = checkpoint.array(index)
            np.testing.assert_array_equal(array[...], value)
            assert array[...].dtype == value.dtype
            for _ in range(20):
                ends = [
                    sorted(RANDOM.choice(size + 1, 2)) for size in value.shape
                ]
                box = tuple(slice(*map(int, each)) for each in ends)
                np.testing.assert_array_equal(array[box], value[box])
        np.testing.assert_array_equal(checkpoint.extra, [np.ones(2)])


def test_only_files_that_have_a_part_of_a_box_are_opened(tmp_path):
    path = save(Folder(tmp_path, 3))
    for other in (0, 2):
        (path / stored.part_name(other)).unlink()
    box = slice(5, 7), slice(0, 5)
    with stored.Stored(path) as checkpoint:
        part = checkpoint.array(0)[box]
    np.testing.assert_array_equal(part, VALUES[0][box])


def test_only_the_rows_of_a_part_are_read(tmp_path, monkeypatch):
    """Of one file, too."""
    folder = Folder(tmp_path, 3)
    rows = np.arange(4000.0).reshape(100, 40)
    folder.write("one.npz", {"variables": [{}]}, [rows])
    sizes, original = [], os.pread

    def pread(fileno, size, start):
        sizes.append(size)
        return original(fileno, size, start)

    with stored.Stored(tmp_path / "one.npz") as checkpoint:
        array = checkpoint.array(0)
        monkeypatch.setattr(os, "pread", pread)
        part = array[slice(90, 93), slice(0, 40)]
    np.testing.assert_array_equal(part, rows[90:93])
    assert sum(sizes) == part.nbytes + 4  # The length of the header, too.


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)


def truncate(path):
    os.truncate(path, path.stat().st_size - 9)


def take_from_the_last_save(path):
    """A part that is whole, and another save's."""
    other = path.parents[1] / file_name(1, 0, is_sharded=True) / path.name
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize(
    "harm, name",
    [
        (damage, "part-00001.npz"),
        (truncate, "part-00002.npz"),
        (damage, stored.INDEX),
        (os.unlink, "part-00000.npz"),
        (take_from_the_last_save, "part-00001.npz"),
    ],
)
def test_a_damaged_file_makes_the_checkpoint_before_count(tmp_path, harm, name):
    folder = Folder(tmp_path, 3)
    whole = save(folder)
    path = save(folder, 2, [value + value for value in VALUES])
    harm(path / name)
    assert newest(folder).name == whole.name
    assert (tmp_path / f"damaged-{path.name}" / name).exists() != (
        harm is os.unlink
    )
    assert folder.files() == [whole]


def test_without_an_index_it_is_none(tmp_path):
    folder = Folder(tmp_path, 3)
    path = save(folder)
    (path / stored.INDEX).unlink()
    write_part(folder, file_name(2, 0, is_sharded=True), 0)
    assert newest(folder) is None
    assert list(tmp_path.iterdir()) == [path]  # The parts of no save are gone.


def test_old_ones_are_deleted_but_the_best(tmp_path):
    folder = Folder(tmp_path, keep=2)
    best = save(folder, 1)
    for epoch in (2, 3, 4):
        name = file_name(epoch, 0, is_sharded=True)
        for worker in range(3):
            write_part(folder, name, worker)
        folder.commit(name, 3, {"variables": []}, [], best.name)
    assert [path.name[:17] for path in folder.files()] == [
        "checkpoint-000001",
        "checkpoint-000003",
        "checkpoint-000004",
    ]


def run_worker(path, worker, barrier, committed, make_folder):
    """One of three workers that save in a loop, in the same order as a job."""
    folder = make_folder(path, keep=2)
    for epoch in itertools.count(committed.value + 1):
        name = file_name(epoch, 0, is_sharded=True)
        write_part(folder, name, worker, [value * epoch for value in VALUES])
        barrier.wait()  # All have written their parts.
        if worker == 0:
            commit(folder, name)
            committed.value = epoch
        barrier.wait()


def kill_in_saves(path, kills, seed=0, make_folder=Folder):
    """Kills a worker at random moments; after each, the newest must be whole.

    Returns:
        Numbers of kills in a half-written checkpoint, and in a finished one.
    """
    chance = random.Random(seed)
    context = multiprocessing.get_context("fork")
    committed, folder = context.Value("i", 0), make_folder(path, keep=2)
    folder.prepare()
    half_written = 0
    for _ in range(kills):
        barrier = context.Barrier(3)
        processes = [
            context.Process(
                target=run_worker,
                args=(path, worker, barrier, committed, make_folder),
            )
            for worker in range(3)
        ]
        for process in processes:
            process.start()
        time.sleep(chance.uniform(0.005, 0.08))
        chance.shuffle(processes)
        for process in processes:  # The launcher ends the others, too.
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            time.sleep(chance.choice([0, 0.01]))
        half_written += any(map(os.path.isdir, path.glob(".tmp-checkpoint-*")))
        found = newest(folder)
        if found is None:
            assert committed.value == 0
            continue
        epoch = int(found.name.split("-")[1])
        # A worker may be killed between a commit and the note of it.
        assert epoch in (committed.value, committed.value + 1)
        committed.value = epoch
        with stored.Stored(found.path) as checkpoint:
            for index, value in enumerate(VALUES):
                array = checkpoint.array(index)[...]
                np.testing.assert_array_equal(array, value * epoch)
    assert committed.value > 0
    return half_written, kills - half_written


@pytest.mark.slow
def test_a_worker_killed_in_a_save_loses_nothing(tmp_path):
    half_written, _ = kill_in_saves(tmp_path, kills=12)
    assert half_written > 0
