"""Finds the checkpoint to resume from, the same on all workers.

The first worker reads its folder and broadcasts what it reads to the others,
which need no access to that folder. Variables are read one after the other, so
that a model whose variables are sharded needs no host memory for all of them.
"""

import dataclasses
import io
import pathlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu._keras import training_state
from kerasmgpu._keras.fit import Fit
from kerasmgpu.callbacks.checkpoints import file_format, plain_data, snapshot
from kerasmgpu.callbacks.checkpoints.folder import Folder
from kerasmgpu.errors import InputError
from kerasmgpu.job import workers

_NOTHING, _ERROR, _FILE = b"N", b"E", b"F"
"""First byte of the first worker's message: no file, an error, a file."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A checkpoint to resume from.

    Attributes:
        name: String, the file's name.
        manifest: Dictionary, see `file_format`.
        extra: List of the checkpoint's NumPy arrays that are no variables.
        path: The file's path; `None` on workers other than the first.
    """

    name: str
    manifest: dict[str, Any]
    extra: list[np.ndarray]
    path: pathlib.Path | None = None

    @property
    def progress(self) -> snapshot.Progress:
        """The checkpoint's state other than variables, decoded."""
        content = plain_data.decode(self.manifest["progress"], self.extra)
        return snapshot.Progress(**content)

    def restore_variables(self, model: keras.Model) -> None:
        """Assigns the variables to a model, one by one; collective.

        Raises:
            InputError: If the checkpoint is of another model.
        """
        if self.path is None:
            self._restore(model, None)
            return
        with open(self.path, "rb") as file:
            self._restore(model, file_format.Reader(file))

    def _restore(
        self, model: keras.Model, reader: file_format.Reader | None
    ) -> None:
        strategy = model.distribute_strategy

        def array(index: int) -> np.ndarray:
            own = None if reader is None else reader.array(index)
            variable = self.manifest["variables"][index]
            # A single process saves a metric's value for each replica.
            more = [] if variable["parts"] is None else [-1]
            return workers.broadcast_array(
                strategy,
                own,
                file_format.dtype(self.manifest["dtypes"][index]),
                [*more, *variable["shape"]],
            )

        training_state.restore(
            model, self.manifest, array, workers.is_first(strategy)
        )


class Resumption:
    """Finds the checkpoint from which a `fit` resumes, and its first step.

    Args:
        folder: The first worker's `Folder`.
        resume: Boolean, whether the run there may be resumed.
        data_goes_on: Boolean, whether `fit` gets data that begin at
            `first_step`. `fit` then resumes from the checkpoint that
            `first_step` found.
    """

    def __init__(
        self, folder: Folder, resume: bool, data_goes_on: bool
    ) -> None:
        self._folder, self._resume = folder, resume
        self._data_goes_on = data_goes_on
        self._asked: tuple[tf.distribute.Strategy, Found | None] | None = None

    def first_step(self, steps_per_epoch: int) -> int:
        """See `Checkpoint.first_step`; collective.

        Keeps the checkpoint, which `found` then returns if `data_goes_on`.
        """
        strategy = tf.distribute.get_strategy()
        found = newest(strategy, self._folder, self._resume)
        first_step = 0
        if found is not None:
            progress = found.progress
            _require_same_epochs(progress, steps_per_epoch)
            first_step = progress.epoch * steps_per_epoch + progress.step
        self._asked = strategy, found
        return first_step

    def found(self, strategy: tf.distribute.Strategy, fit: Fit) -> Found | None:
        """Returns the checkpoint to resume from, or `None`; collective.

        Raises:
            InputError: As `newest`; if the checkpoint has another number of
                steps per epoch; or with `data_goes_on`, without a call of
                `first_step` before.
        """
        if self._data_goes_on:
            found = self._found_before(strategy, fit)
        else:
            found = newest(strategy, self._folder, self._resume)
        if found is not None and fit.steps_per_epoch:
            progress = found.progress
            _require_same_epochs(progress, fit.steps_per_epoch)
        return found

    def _found_before(
        self, strategy: tf.distribute.Strategy, fit: Fit
    ) -> Found | None:
        asked, self._asked = self._asked, None
        if asked is None or not fit.data_is_one_stream:
            raise InputError(
                "data_goes_on=True is for data that begin at the checkpoint's "
                "first_step(steps_per_epoch). Received: a fit with "
                f"steps_per_epoch={fit.steps_per_epoch}, before which "
                f"first_step was {'not ' if asked is None else ''}called"
            )
        before, found = asked
        if workers.count(before) != workers.count(strategy):
            raise InputError(
                "With several workers, call Checkpoint.first_step in the "
                "scope of the model's strategy. Received: a call outside it"
            )
        return found


def _require_same_epochs(
    progress: snapshot.Progress, steps_per_epoch: int
) -> None:
    """Raises `InputError` if `steps_per_epoch` isn't the checkpoint's."""
    if progress.steps_per_epoch not in (None, steps_per_epoch):
        raise InputError(
            f"The checkpoint's epochs have {progress.steps_per_epoch} steps. "
            f"Received: steps_per_epoch={steps_per_epoch}; resume "
            f"with steps_per_epoch={progress.steps_per_epoch}, or choose "
            "another directory"
        )


def newest(
    strategy: tf.distribute.Strategy, folder: Folder, resume: bool
) -> Found | None:
    """Returns the checkpoint to resume from; collective.

    Args:
        strategy: `tf.distribute.Strategy` of the model.
        folder: The first worker's `Folder`.
        resume: Boolean, whether the run there may be resumed.

    Returns:
        `Found`, or `None` without a checkpoint.

    Raises:
        InputError: On all workers, if the first worker's folder can't be
            used, if all its checkpoints are damaged, or if it has checkpoints
            and `resume` is false.
    """
    found: Found | None = None
    error: Exception | None = None
    if workers.is_first(strategy):
        try:
            folder.prepare()
            _require_empty_or_resume(folder, resume)
            path = folder.newest_whole()
            found = None if path is None else _read(path)
        except (InputError, OSError) as raised:
            error = raised
    if workers.count(strategy) == 1:
        if error is not None:
            raise error
        return found
    message = workers.broadcast(strategy, _pack(found, error))
    others = _unpack(message)
    return others if found is None else found


def _require_empty_or_resume(folder: Folder, resume: bool) -> None:
    files = folder.files()
    if files and not resume:
        raise InputError(
            f"The directory of checkpoints holds those of a run. Received: "
            f"resume=False and {folder.path} with {len(files)} checkpoints; "
            "choose another directory, move them away, or set resume=True"
        )


def _read(path: pathlib.Path) -> Found:
    with open(path, "rb") as file:
        reader = file_format.Reader(file)
        variables = len(reader.manifest["variables"])
        extra = [reader.array(i) for i in range(variables, len(reader))]
    return Found(path.name, reader.manifest, extra, path)


def _pack(found: Found | None, error: Exception | None) -> bytes:
    if error is not None:
        return _ERROR + str(error).encode()
    if found is None:
        return _NOTHING
    content = {"name": found.name, "manifest": found.manifest}
    file = io.BytesIO()
    file_format.write(file, content, found.extra)
    return _FILE + file.getvalue()


def _unpack(data: bytes) -> Found | None:
    kind, content = data[:1], data[1:]
    if kind == _ERROR:
        raise InputError(content.decode())
    if kind == _NOTHING:
        return None
    manifest, extra = file_format.read(io.BytesIO(content))
    return Found(manifest["name"], manifest["manifest"], extra)
