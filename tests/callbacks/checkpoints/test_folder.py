import os

import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.callbacks.checkpoints import restoring
from kerasmgpu.callbacks.checkpoints.folder import Folder, file_name


def fill(folder, *positions, best=None):
    for position in positions:
        name = file_name(*position)
        folder.write(name, {"variables": []}, [np.ones(2)], best=best)


def newest(folder):
    return restoring.newest(tf.distribute.get_strategy(), folder, True)


def positions(folder):
    return [path.name for path in folder.files()]


def test_the_last_and_the_best_are_kept(tmp_path):
    folder = Folder(tmp_path / "made" / "here", keep=2)
    folder.prepare()
    fill(folder, (0, 5), (1, 0), best=file_name(0, 5))
    fill(folder, (1, 5), (10, 0), best=file_name(0, 5))
    assert positions(folder) == [
        file_name(0, 5),
        file_name(1, 5),
        file_name(10, 0),
    ]


def test_nothing_is_deleted_before_the_new_one_is_there(tmp_path, monkeypatch):
    folder = Folder(tmp_path, keep=1)
    fill(folder, (1, 0))

    def refuse(source, target):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        fill(folder, (2, 0))
    assert [path.name for path in tmp_path.iterdir()] == [file_name(1, 0)]


def test_damaged_ones_are_put_aside_and_do_not_count(tmp_path):
    folder = Folder(tmp_path, keep=1)
    fill(folder, (1, 0))
    (tmp_path / file_name(2, 0)).write_bytes(b"")
    assert newest(folder).name == file_name(1, 0)
    fill(folder, (1, 5))
    assert positions(folder) == [file_name(1, 5)]


def test_an_empty_folder_has_none_and_other_files_are_left_alone(tmp_path):
    names = ["checkpoint-notes.npz", ".tmp-notes", ".tmp-probe"]
    for name in names:
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / ".tmp-folder").mkdir()
    # No files, whatever they are named.
    (tmp_path / file_name(1, 0)).mkdir()
    (tmp_path / f".tmp-{file_name(1, 0)}").mkdir()
    before = sorted(tmp_path.iterdir())
    folder = Folder(tmp_path, keep=1)
    folder.prepare()
    assert newest(folder) is None
    assert sorted(tmp_path.iterdir()) == before
    assert all((tmp_path / name).read_bytes() == b"mine" for name in names)


def test_a_folder_that_can_not_be_made(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(kerasmgpu.InputError, match="can't be written"):
        Folder(tmp_path / "file" / "folder", keep=1).prepare()
