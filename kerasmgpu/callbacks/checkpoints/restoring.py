"""Finds the checkpoint to resume from, the same on all workers.

Of a file, the first worker reads variables one after the other and broadcasts
them: the others need no access to its folder. Of a sharded checkpoint, each
worker reads what its own parts need. Neither takes host memory for more than
a worker's own state and one variable.
"""

import contextlib
import dataclasses
import functools
import io
import json
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from kerasmgpu._keras import training_state
from kerasmgpu._keras.fit import Fit
from kerasmgpu.callbacks.checkpoints import file_format, plain_data, snapshot
from kerasmgpu.callbacks.checkpoints.folder import Folder
from kerasmgpu.callbacks.checkpoints.stored import Stored
from kerasmgpu.errors import InputError
from kerasmgpu.job import workers
from kerasmgpu.stores.places import Place

_WHOLE, _DAMAGED, _UNREADABLE = range(3)
"""States of a checkpoint, as a worker finds it."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A checkpoint to resume from.

    Attributes:
        name: String, the name of the file, or folder.
        manifest: Dictionary, see `file_format`.
        extra: List of the checkpoint's NumPy arrays that are no variables.
        path: Its path; of a file, `None` on workers other than the first.
    """

    name: str
    manifest: dict[str, Any]
    extra: list[np.ndarray]
    path: Place | None = None

    @property
    def progress(self) -> snapshot.Progress:
        """The checkpoint's state other than variables, decoded."""
        content = plain_data.decode(self.manifest["progress"], self.extra)
        return snapshot.Progress(**content)

    def restore_variables(self, model: keras.Model) -> list[str]:
        """Assigns the variables to a model, one by one; collective.

        Returns:
            List of the paths of layers' variables with NaN, or trained ones
            with infinity, as far as this worker reads them.

        Raises:
            InputError: If the checkpoint is of another model.
        """
        strategy = model.distribute_strategy
        variables = self.manifest["variables"]
        not_finite: dict[str, None] = {}
        trained = {i for one in self.manifest["optimizers"] for i in one or ()}
        with contextlib.ExitStack() as stack:
            stored = self.path and stack.enter_context(Stored(self.path))

            def array(index: int) -> Any:
                if variables[index]["kind"] != "layer":
                    return read(index)
                # A mask's infinity is no error, a weight's is.
                check = np.isnan if index not in trained else _is_not_finite
                note = functools.partial(
                    not_finite.setdefault, variables[index]["path"]
                )
                return _Checked(read(index), check, note)

            def read(index: int) -> Any:
                if stored and (stored.is_sharded or is_alone):
                    return stored.array(index)
                own = stored and stored.array(index)[...]
                shape = variables[index]["shape"]
                dtype = file_format.dtype(self.manifest["dtypes"][index])
                return workers.broadcast_array(strategy, own, dtype, shape)

            is_alone = workers.count(strategy) == 1
            is_first = workers.is_first(strategy)
            training_state.restore(model, self.manifest, array, is_first)
        return list(not_finite)


class _Checked:
    """An array, parts of which are checked when they are read.

    Args:
        array: NumPy array, or a `stored.StoredArray`.
        check: Function of an array that returns which of its elements to note.
        note: Function without arguments, called if there are any.
    """

    def __init__(
        self,
        array: Any,
        check: Callable[[np.ndarray], np.ndarray],
        note: Callable[[], Any],
    ) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        self._array, self._check, self._note = array, check, note

    def __getitem__(self, box: Any) -> np.ndarray:
        part = self._array[box]
        # "V" are the types of ml_dtypes, such as bfloat16.
        if part.dtype.kind in "fcV" and self._check(part).any():
            self._note()
        return part


def _is_not_finite(array: np.ndarray) -> np.ndarray:
    return ~np.isfinite(array)


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
    """Returns the checkpoint to resume from, if there is one; collective.

    Args:
        resume: Boolean, whether the run there may be resumed.

    Raises:
        InputError: On all workers, if the first worker's folder can't be
            used, if all its checkpoints are damaged, or if it has checkpoints
            and `resume` is false.
    """

    def names() -> list[str]:
        folder.prepare()
        _require_empty_or_resume(folder, resume)
        return [path.name for path in folder.files()]

    damaged: list[str] = []
    for name in reversed(_of_first(strategy, names)):
        found = _examined(strategy, folder.path / name)
        if found is not None:
            _of_first(strategy, lambda: folder.put_aside(damaged))
            return found
        damaged.append(name)
    if damaged:
        raise InputError(
            f"All {len(damaged)} checkpoints in {folder.path} are damaged. "
            "Move them away to start from the beginning, or restore a copy"
        )
    return None


def _of_first(
    strategy: tf.distribute.Strategy, function: Callable[[], Any]
) -> Any:
    """Calls a function on the first worker; collective.

    All workers return its result, data that `json` can write.

    Raises:
        InputError: On all workers, if the function raises that or `OSError`.
    """
    result = error = None
    if workers.is_first(strategy):
        try:
            result = function()
        except (InputError, OSError) as raised:
            error = raised
    if workers.count(strategy) > 1:
        message = json.dumps([result, error and str(error)]).encode()
        result, reason = json.loads(workers.broadcast(strategy, message))
        error = reason and InputError(reason)
    if error is not None:
        raise error
    return result


def _examined(strategy: tf.distribute.Strategy, path: Place) -> Found | None:
    """Verifies a checkpoint; collective, each worker reads a share of it.

    Returns `None` if it is damaged.

    Raises:
        InputError: If a worker can't read it.
    """
    found, state, reason = None, _WHOLE, ""
    num, index = workers.count(strategy), workers.index(strategy)
    is_file = path.name.endswith(".npz")
    if index == 0 or not is_file:
        try:
            with Stored(path) as stored:
                stored.verify(index, num)
                found = Found(path.name, stored.manifest, stored.extra, path)
        except file_format.DamagedFileError as error:
            state, reason = _DAMAGED, str(error)
        except OSError:
            if num == 1:
                raise
            state = _UNREADABLE
    states = workers.gather(strategy, [state])[:, 0]
    if (states == _UNREADABLE).any():
        which = [
            str(worker) for worker in np.flatnonzero(states == _UNREADABLE)
        ]
        raise InputError(
            f"Workers {', '.join(which)} can't read the checkpoint {path}. "
            "Expected: a folder that all workers share; mount it there, or make "
            "one file of it, which the first worker reads: `kerasmgpu "
            f"checkpoint convert {path} {path}.npz`"
        )
    if (states == _DAMAGED).any():
        reason = reason or f"worker {states.argmax()} says why"
        logging.warning(
            "%s is damaged (%s): trying the checkpoint before it.", path, reason
        )
        return None
    if is_file and num > 1:
        content = _unpack(workers.broadcast(strategy, _pack(found)))
        return found or Found(path.name, *content)
    return found


def _require_empty_or_resume(folder: Folder, resume: bool) -> None:
    files = folder.files()
    if files and not resume:
        raise InputError(
            f"The directory of checkpoints holds those of a run. Received: "
            f"resume=False and {folder.path} with {len(files)} checkpoints; "
            "choose another directory, move them away, or set resume=True"
        )


def _pack(found: Found | None) -> bytes:
    if found is None:
        return b""
    file = io.BytesIO()
    file_format.write(file, {"manifest": found.manifest}, found.extra)
    return file.getvalue()


def _unpack(data: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    manifest, extra = file_format.read(io.BytesIO(data))
    return manifest["manifest"], extra
