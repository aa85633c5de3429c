"""Keras's own callbacks under several workers write one set of files, whole.

Every worker calls them, since reading a model's variables is a collective. On
all workers but the first their paths lead into a private folder that is
deleted when `fit` ends. `BackupAndRestore` restores everywhere what the first
worker's folder has. Models and weights get their name when they are whole, and
what a program saves by itself (`model.save`) is saved by the first worker.
"""

import contextlib
import io
import os
import tempfile
import threading
import zipfile

import keras
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.callbacks.callback_list import CallbackList

from kerasmgpu import workers
from kerasmgpu._keras.scope import is_ours
from kerasmgpu._keras.seams import seam

_PATHS = {
    keras.callbacks.CSVLogger: ("filename",),
    keras.callbacks.ModelCheckpoint: ("filepath",),
    keras.callbacks.TensorBoard: ("log_dir",),
    keras.callbacks.BackupAndRestore: (
        "backup_dir",
        "_weights_path",
        "_training_metadata_path",
        "_prev_weights_path",
        "_prev_training_metadata_path",
    ),
}
"""Attributes that hold paths: the first as the user gave it, others in it."""

_TEMPORARY = ".tmp-"


class _Private(threading.local):
    """The private folder of this thread's `fit`, and what was redirected."""

    folder = None
    redirected = ()
    saves_whole = False


_private = _Private()


@seam(TensorFlowTrainer, "fit")
def _fit(original, self, *args, **kwargs):
    strategy = self.distribute_strategy
    if not is_ours(strategy) or workers.is_first(strategy):
        return original(self, *args, **kwargs)
    before = _private.folder, _private.redirected
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-") as folder:
        _private.folder, _private.redirected = folder, []
        try:
            return original(self, *args, **kwargs)
        finally:
            for callback, name, path in _private.redirected:
                setattr(callback, name, path)
            _private.folder, _private.redirected = before


@seam(CallbackList, "set_model")
def _set_model(original, self, model):
    strategy = getattr(model, "distribute_strategy", None)
    if is_ours(strategy) and workers.count(strategy) > 1:
        for callback in self.callbacks:
            sent = None
            if isinstance(callback, keras.callbacks.BackupAndRestore):
                sent = workers.broadcast(strategy, _pack(callback.backup_dir))
            if _private.folder is not None:
                _redirect(callback)
                if sent is not None:
                    _unpack(sent, callback.backup_dir)
    original(self, model)


def _redirect(callback):
    """Lets the paths of a callback lead into the private folder."""
    for kind, names in _PATHS.items():
        if not isinstance(callback, kind):
            continue
        folder = tempfile.mkdtemp(dir=_private.folder)
        for name in names:
            path = getattr(callback, name)
            _private.redirected.append((callback, name, path))
            moved = os.path.join(folder, os.path.basename(os.fspath(path)))
            setattr(callback, name, moved)
            if name == "backup_dir":
                folder = moved


def _pack(folder):
    """The files of a folder as the bytes of a zip archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        if os.path.isdir(folder):
            for entry in sorted(os.scandir(folder), key=lambda e: e.name):
                if entry.is_file() and not entry.name.startswith(_TEMPORARY):
                    archive.write(entry.path, entry.name)
    return file.getvalue()


def _unpack(data, folder):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if archive.namelist():
            archive.extractall(folder)


def _seam_of_saving_callback(kind):
    @seam(kind, "_save_model")
    def save(original, self, *args, **kwargs):
        if not is_ours(self.model.distribute_strategy):
            return original(self, *args, **kwargs)
        _private.saves_whole = True
        try:
            return original(self, *args, **kwargs)
        finally:
            _private.saves_whole = False


for _kind in (
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.BackupAndRestore,
):
    _seam_of_saving_callback(_kind)


def _is_private(path):
    folder = _private.folder
    return folder is not None and str(path).startswith(folder)


def _save_and_forget(save, model, path, args, kwargs):
    """Takes part in a save, which may be a collective, and leaves no file."""
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-") as folder:
        copy = os.path.join(folder, os.path.basename(os.fspath(path)))
        save(model, copy, *args, **kwargs)


def _seam_of_save(name):
    @seam(keras.Model, name)
    def save(original, self, filepath, *args, **kwargs):
        strategy = getattr(self, "distribute_strategy", None)
        if is_ours(strategy) and not workers.is_first(strategy):
            if not _is_private(filepath):
                return _save_and_forget(original, self, filepath, args, kwargs)
        # Other file systems than the machine's have no such renaming.
        if not _private.saves_whole or "://" in str(filepath):
            return original(self, filepath, *args, **kwargs)
        folder, file_name = os.path.split(filepath)
        temporary = os.path.join(folder, _TEMPORARY + file_name)
        try:
            original(self, temporary, *args, **kwargs)
            os.replace(temporary, filepath)
        except BaseException:  # Ctrl-C too leaves no half file.
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)
            raise


for _name in ("save", "save_weights"):
    _seam_of_save(_name)
