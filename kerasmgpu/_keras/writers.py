"""Makes Keras's callbacks and saving functions write files once per job.

Every worker runs the callbacks, since reading a model's variables is a
collective. On all workers but the first, their paths are redirected to a
private folder that is deleted when `fit` ends. `BackupAndRestore` restores the
first worker's backup on all workers. In `model.save`, `keras.saving.save_model`
and their `save_weights` the first worker writes, and the others give it their
parts of sharded variables, one after the other. Files of models and weights are
renamed atomically. The progress bar and callbacks that report to a service run
on the first worker only.
"""

import contextlib
import functools
import inspect
import io
import os
import pathlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src.legacy.saving import legacy_h5_format
from keras.src.saving import saving_lib

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
    """Makes a temporary folder for callbacks' files, except on the first worker."""
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

    On all workers but the first, callbacks that only print are removed, and
    followers replace those that run on the first worker only.
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


def _is_file(path: Any, settings: dict[str, Any]) -> bool:
    """Whether a save writes local files, which can be renamed into place.

    `False` for a folder, a prompt before overwriting, an open file, and remote
    file systems, which may lack renaming.
    """
    return (
        isinstance(path, (str, os.PathLike))
        and str(path).endswith((".keras", ".h5", ".hdf5", ".json"))
        and "://" not in str(path)
        and settings.get("overwrite", True)
        and settings.get("zipped", True)
        and not os.path.isdir(path)
    )


def _saved_variables(model: keras.Model) -> list[Any]:
    """Returns TensorFlow's variables that a model's file holds."""
    variables = list(model.variables)
    for optimizer in training_state.optimizers(model):
        variables += optimizer.variables
    return [variable.value for variable in variables]


def _on_first_worker(
    model: keras.Model, what: str, save: Callable[[], None]
) -> None:
    """Saves on the first worker; others give it parts of sharded variables."""
    strategy = model.distribute_strategy
    if strategy.num_workers > 1 and first_worker_reads.are_collective(
        _saved_variables(model)
    ):
        first_worker_reads.run(strategy, what, save)
    elif strategy.is_first_worker:
        with strategy.extended.alone():
            save()


def _seam_of_save(owner: Any, name: str, what: str, writes: bool) -> None:
    """Makes a function of Keras save on the first worker only.

    Args:
        owner, name: Owner and name of the function, which takes a model and a
            path.
        what: String, the function that programs call, for errors.
        writes: Whether the function writes the file itself; the file is then
            renamed atomically.
    """

    @seam(owner, name)
    def save(
        original: Original, model: Any, filepath: Any, *args: Any, **kwargs: Any
    ) -> None:
        write = original
        if not is_ours(getattr(model, "distribute_strategy", None)):
            return write(model, filepath, *args, **kwargs)
        if writes:
            bound = inspect.signature(original).bind(
                model, filepath, *args, **kwargs
            )
            if _is_file(filepath, bound.arguments):
                write = functools.partial(_save_whole, original)
        _on_first_worker(
            model, what, lambda: write(model, filepath, *args, **kwargs)
        )


# The methods, and `keras.saving.save_model` and `save_weights`, which programs
# may have imported before, end in functions that write (Keras 3.10 to 3.15).
# The methods have seams of their own, since they ask before a file is
# overwritten, which must happen once per job.
for _owner, _name, _what, _writes in (
    (keras.Model, "save", "model.save", False),
    (keras.Model, "save_weights", "model.save_weights", False),
    (saving_lib, "save_model", "keras.saving.save_model", True),
    (saving_lib, "save_weights_only", "keras.saving.save_weights", True),
    (legacy_h5_format, "save_model_to_hdf5", "keras.saving.save_model", True),
):
    _seam_of_save(_owner, _name, _what, _writes)
