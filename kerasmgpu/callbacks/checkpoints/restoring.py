"""The checkpoint to resume from, the same on all workers.

The first worker reads its folder and broadcasts the file to the others, which
need no access to that folder.
"""

import io
from typing import Any

import numpy as np
import tensorflow as tf

from kerasmgpu._keras.fit import Fit
from kerasmgpu.callbacks.checkpoints import file_format, snapshot
from kerasmgpu.callbacks.checkpoints.folder import Folder, Found
from kerasmgpu.errors import InputError
from kerasmgpu.job import workers

Checkpoint = tuple[str, dict[str, Any], list[np.ndarray]]
"""Name, manifest and arrays of a checkpoint."""

_NOTHING, _ERROR, _FILE = b"N", b"E", b"F"
"""First byte of the first worker's message."""


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
        self._asked: tuple[tf.distribute.Strategy, Checkpoint | None] | None = (
            None
        )

    def first_step(self, steps_per_epoch: int) -> int:
        """See `Checkpoint.first_step`; collective."""
        strategy = tf.distribute.get_strategy()
        found = newest(strategy, self._folder, self._resume)
        first_step = 0
        if found is not None:
            progress = snapshot.progress_of(*found[1:])
            _require_same_epochs(progress, steps_per_epoch)
            first_step = progress.epoch * steps_per_epoch + progress.step
        self._asked = strategy, found
        return first_step

    def found(
        self, strategy: tf.distribute.Strategy, fit: Fit
    ) -> Checkpoint | None:
        """Returns the running `fit`'s checkpoint, like `newest`; collective."""
        if self._data_goes_on:
            found = self._found_before(strategy, fit)
        else:
            found = newest(strategy, self._folder, self._resume)
        if found is not None and fit.steps_per_epoch:
            progress = snapshot.progress_of(*found[1:])
            _require_same_epochs(progress, fit.steps_per_epoch)
        return found

    def _found_before(
        self, strategy: tf.distribute.Strategy, fit: Fit
    ) -> Checkpoint | None:
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
    """Refuses a changed `steps_per_epoch`."""
    if progress.steps_per_epoch not in (None, steps_per_epoch):
        raise InputError(
            f"The checkpoint's epochs have {progress.steps_per_epoch} steps. "
            f"Received: steps_per_epoch={steps_per_epoch}; resume "
            f"with steps_per_epoch={progress.steps_per_epoch}, or choose "
            "another directory"
        )


def newest(
    strategy: tf.distribute.Strategy, folder: Folder, resume: bool
) -> Checkpoint | None:
    """Returns the checkpoint to resume from; collective.

    Args:
        strategy: `tf.distribute.Strategy` of the model.
        folder: The first worker's `Folder`.
        resume: Boolean, whether the run there may be resumed.

    Returns:
        `(name, manifest, arrays)`, or `None` without a checkpoint.

    Raises:
        InputError: On all workers, if the first worker's folder can't be
            used, if all its checkpoints are damaged, or if it has checkpoints
            and `resume` is false.
    """
    found, error = None, None
    if workers.is_first(strategy):
        try:
            folder.prepare()
            _require_empty_or_resume(folder, resume)
            found = folder.newest_whole()
        except (InputError, OSError) as raised:
            error = raised
    if workers.count(strategy) == 1:
        if error is not None:
            raise error
        if found is None:
            return None
        path, manifest, arrays = found
        return path.name, manifest, arrays
    return _unpack(workers.broadcast(strategy, _pack(found, error)))


def _require_empty_or_resume(folder: Folder, resume: bool) -> None:
    files = folder.files()
    if files and not resume:
        raise InputError(
            f"The directory of checkpoints holds those of a run. Received: "
            f"resume=False and {folder.path} with {len(files)} checkpoints; "
            "choose another directory, move them away, or set resume=True"
        )


def _pack(found: Found | None, error: Exception | None) -> bytes:
    if error is not None:
        return _ERROR + str(error).encode()
    if found is None:
        return _NOTHING
    path = found[0]
    return _FILE + path.name.encode() + b"\n" + path.read_bytes()


def _unpack(data: bytes) -> Checkpoint | None:
    kind, content = data[:1], data[1:]
    if kind == _ERROR:
        raise InputError(content.decode())
    if kind == _NOTHING:
        return None
    name, _, file = content.partition(b"\n")
    return name.decode(), *file_format.read(io.BytesIO(file))
