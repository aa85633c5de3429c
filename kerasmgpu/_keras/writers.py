"""Keras's callbacks and `model.save` write files once per job, atomically.

Every worker runs the callbacks, since reading a model's variables is a
collective. On all workers but the first, their paths are redirected to a
private folder that is deleted when `fit` ends. `BackupAndRestore` restores the
first worker's backup on all workers. In `model.save` and `save_weights` the first
worker writes, and the others give it their parts of sharded variables, one after
the other. Files of models and weights are renamed atomically. The progress
bar and callbacks that report to a service run on the first worker only.
"""

import contextlib
import functools
import io
import os
import pathlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import keras

from kerasmgpu import atomic_files
from kerasmgpu._keras import first_worker_hooks, training_state
from kerasmgpu._keras.fit import Fit, innermost
from kerasmgpu.engine import first_worker_reads
from kerasmgpu.engine.exact_strategy import ExactStrategy, is_ours
from kerasmgpu.engine.seams import Original, seam

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
"""Attributes with paths: first the user's, then paths inside that one."""

_REPORTERS = (keras.callbacks.ProgbarLogger, keras.callbacks.RemoteMonitor)

_TRACKERS = ("comet_ml", "mlflow", "wandb")
"""Packages whose callbacks report logs to a service."""


@contextlib.contextmanager
def private_folder(fit: Fit) -> Iterator[None]:
    """Makes a temporary folder for callbacks' files, except on the first worker.

    Args:
        fit: The `fit.Fit` that begins.
    """
    strategy = fit.model.distribute_strategy
    if not is_ours(strategy) or strategy.is_first_worker:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-") as folder:
        fit.private_folder = folder
        try:
            yield
        finally:
            for callback, name, path in fit.redirected:
                setattr(callback, name, path)


def redirect(
    callbacks: list[keras.callbacks.Callback], strategy: ExactStrategy
) -> None:
    """Redirects the callbacks' files; called before they get their model.

    Removes callbacks that only print from other workers' lists; those that run
    on the first worker have followers there.

    Args:
        callbacks: List of `keras.callbacks.Callback`.
        strategy: The strategy of the model.
    """
    if strategy.num_workers == 1:
        return
    shared = [each for each in callbacks if not isinstance(each, _REPORTERS)]
    first_worker_hooks.agree(shared, strategy, _runs_on_first_worker)
    if not strategy.is_first_worker:
        callbacks[:] = shared
    fit = innermost()
    for callback in callbacks:
        sent = None
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            sent = strategy.from_first_worker(_pack(callback.backup_dir))
        if fit is not None and fit.private_folder is not None:
            _redirect(callback, fit)
            if sent is not None:
                _unpack(sent, callback.backup_dir)


def _runs_on_first_worker(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback is a tracker's, or wrapped in `OnFirstWorker`."""
    if isinstance(callback, keras.callbacks.ModelCheckpoint):
        return False
    package = type(callback).__module__.partition(".")[0]
    return hasattr(callback, "on_first_worker") or package in _TRACKERS


def _redirect(callback: keras.callbacks.Callback, fit: Fit) -> None:
    """Redirects the paths of a callback to the private folder."""
    for kind, names in _PATHS.items():
        if not isinstance(callback, kind):
            continue
        folder = tempfile.mkdtemp(dir=fit.private_folder)
        for name in names:
            path = getattr(callback, name)
            fit.redirected.append((callback, name, path))
            moved = os.path.join(folder, os.path.basename(os.fspath(path)))
            setattr(callback, name, moved)
            if name == "backup_dir":
                folder = moved


def _pack(folder: str) -> bytes:
    """Returns the files of a folder as the bytes of a zip archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        if os.path.isdir(folder):
            for entry in sorted(os.scandir(folder), key=lambda e: e.name):
                if entry.is_file() and not entry.name.startswith(
                    atomic_files.TEMPORARY
                ):
                    archive.write(entry.path, entry.name)
    return file.getvalue()


def _unpack(data: bytes, folder: str) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if archive.namelist():
            archive.extractall(folder)


def _save_whole(
    save: Callable[..., Any],
    model: keras.Model,
    path: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Saves into a temporary folder, then renames the complete files.

    Sharded weights are several files: the index, which lists the others, is
    renamed last.
    """
    folder, file_name = os.path.split(path)
    temporary = os.path.join(folder, atomic_files.TEMPORARY + file_name)
    shutil.rmtree(temporary, ignore_errors=True)  # Left by a killed process.
    os.mkdir(temporary)
    try:
        save(model, os.path.join(temporary, file_name), *args, **kwargs)
        for name in sorted(os.listdir(temporary), key=_is_index):
            os.replace(
                os.path.join(temporary, name), os.path.join(folder, name)
            )
    except BaseException:  # Includes Ctrl-C: never leave a partial file.
        for begun in pathlib.Path(temporary).iterdir():
            atomic_files.discard(begun)
        raise
    finally:
        shutil.rmtree(temporary)


def _is_index(file_name: str) -> bool:
    return file_name.endswith(".json")


def _is_file(path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a save writes local files, which can be renamed into place.

    `False` for a folder, a name that Keras refuses, a prompt before
    overwriting, an open file, and remote file systems, which may lack renaming.
    """
    return (
        isinstance(path, (str, os.PathLike))
        and str(path).endswith((".keras", ".h5", ".hdf5", ".json"))
        and "://" not in str(path)
        and not args
        and kwargs.get("overwrite", True)
        and kwargs.get("zipped", True) is not False
        and not os.path.isdir(path)
    )


def _saved_variables(model: keras.Model) -> list[Any]:
    """TensorFlow's variables that a model's file holds."""
    variables = list(model.variables)
    for optimizer in training_state.optimizers(model):
        variables += optimizer.variables
    return [variable.value for variable in variables]


def _seam_of_save(name: str) -> None:
    @seam(keras.Model, name)
    def save(
        original: Original, self: Any, filepath: Any, *args: Any, **kwargs: Any
    ) -> None:
        strategy = getattr(self, "distribute_strategy", None)
        if not is_ours(strategy):
            return original(self, filepath, *args, **kwargs)
        write = original
        if _is_file(filepath, args, kwargs):
            write = functools.partial(_save_whole, original)

        def on_first_worker() -> None:
            write(self, filepath, *args, **kwargs)

        if strategy.num_workers > 1 and first_worker_reads.are_collective(
            _saved_variables(self)
        ):
            first_worker_reads.run(strategy, f"model.{name}", on_first_worker)
        elif strategy.is_first_worker:
            on_first_worker()


for _name in ("save", "save_weights"):
    _seam_of_save(_name)
