"""Writes checkpoints beside the training, on one worker or on all.

A sharded checkpoint is written in two phases: each worker's thread writes its
part; at the end of a step in which all workers agree that theirs is on disk,
the first worker writes the index and renames the folder. Until then there is
no checkpoint, whichever worker is killed.
"""

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from kerasmgpu._keras import training_state
from kerasmgpu._keras.layer_costs import whole_bytes
from kerasmgpu.atomic_files import TEMPORARY
from kerasmgpu.callbacks.checkpoints.folder import Folder
from kerasmgpu.callbacks.checkpoints.snapshot import Snapshot
from kerasmgpu.errors import InputError
from kerasmgpu.job import workers
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable
from kerasmgpu.stores.places import Place
from kerasmgpu.stores.store_path import StorePath

SHARDED_BYTES = 1 << 30
"""State from which on checkpoints are sharded by default, if that helps.

A job's first worker would gather and hold that much in host memory, beside its
own state, and write it alone, which takes seconds.
"""


@dataclasses.dataclass
class _Part:
    """This worker's part of a checkpoint that is being written."""

    future: Future[None]
    commit: Callable[[], None]


class Saver:
    """Writes the checkpoints of a `fit`, one at a time.

    Args:
        asynchronous: Boolean, whether a thread writes while training goes on.
    """

    def __init__(self, folder: Folder, asynchronous: bool) -> None:
        self._folder = folder
        self._asynchronous = asynchronous
        self._part: _Part | None = None
        self._writing: Future[None] | None = None

    def save(
        self,
        strategy: tf.distribute.Strategy,
        name: str,
        snapshot: Snapshot,
        best: str | None,
    ) -> None:
        """Begins to write a snapshot; collective, as `check`.

        Args:
            best: Name of a checkpoint that is kept, or `None`.
        """
        self.check(strategy, wait=True)
        arrays = [piece.array for piece in snapshot.pieces]
        folder, manifest = self._folder, snapshot.manifest
        extra = snapshot.extra  # Alone: `commit` must not keep the pieces.
        if snapshot.is_sharded:
            num, index = workers.count(strategy), workers.index(strategy)
            pieces = [
                (one.variable, one.start, tuple(one.array.shape))
                for one in snapshot.pieces
            ]
            dtypes = [array.dtype.name for array in arrays]

            def write_part() -> None:
                # Parts that weren't copied are read one by one.
                one_by_one = map(np.asarray, arrays)
                folder.write_part(name, index, pieces, one_by_one, dtypes)

            def commit() -> None:
                folder.commit(name, num, manifest, extra, best)

            def write_all() -> None:
                write_part()
                commit()

            if num == 1:
                self._writing = _started(write_all)
            else:
                self._part = _Part(_started(write_part), commit)
        elif workers.is_first(strategy):
            arrays += extra
            self._writing = _started(
                lambda: folder.write(name, manifest, arrays, best=best)
            )
        if not self._asynchronous:
            self.check(strategy, wait=True)

    def check(
        self, strategy: tf.distribute.Strategy, wait: bool = False
    ) -> None:
        """Ends a sharded checkpoint, and raises the error of the last write.

        While parts are being written, it is a collective of all workers.

        Args:
            wait: Boolean, whether to wait until the last write has ended.

        Raises:
            InputError: If a checkpoint could not be written; that of a part is
                raised on all workers.
        """
        if self._part is not None:
            self._agree(strategy, self._part, wait)
        writing = self._writing
        if writing is None or not (wait or writing.done()):
            return
        self._writing = None
        try:
            writing.result()
        except OSError as error:
            raise self._refusal(error.strerror or str(error)) from error

    def _agree(
        self, strategy: tf.distribute.Strategy, part: _Part, wait: bool
    ) -> None:
        """Commits the parts if all workers have written theirs; collective."""
        if wait:
            concurrent.futures.wait([part.future])
        is_done = part.future.done()
        error = part.future.exception() if is_done else None
        done, failed = workers.gather(strategy, [is_done, error is not None]).T
        if not failed.any() and not done.all():
            return
        self._part = None
        if isinstance(error, OSError):
            raise self._refusal(error.strerror or str(error)) from error
        if error is not None:
            raise error
        if failed.any():
            raise self._refusal(f"by worker {failed.argmax()}, which says why")
        if workers.is_first(strategy):
            self._writing = _started(part.commit)

    def _refusal(self, reason: str) -> InputError:
        return InputError(
            f"A checkpoint could not be written to {self._folder.path} "
            f"({reason}); earlier ones are intact. Free disk space or fix the "
            "folder or store, then start the program again to resume"
        )

    def leave(self) -> None:
        """Logs an error of the last write, when `fit` ends by another one."""
        part = None if self._part is None else self._part.future
        futures = self._writing, part
        self._writing = self._part = None
        for future in futures:
            error = future and future.exception()
            if error is not None:
                logging.error("A checkpoint could not be written: %s", error)


def _started(write: Callable[[], None]) -> Future[None]:
    """Starts a thread; Python waits for it before the process ends."""
    executor = ThreadPoolExecutor(1, "kerasmgpu-checkpoint")
    future = executor.submit(write)
    executor.shutdown(wait=False)
    return future


def shall_shard(model: keras.Model, sharded: bool | None, path: Place) -> bool:
    """Whether each worker writes its part of a checkpoint; collective.

    Args:
        model: Compiled `keras.Model`, built.
        sharded: Boolean, the user's wish, or `None`.
        path: Path of the directory of checkpoints, which exists on the first
            worker.

    Raises:
        InputError: If `sharded`, and workers don't share the directory.
    """
    strategy = model.distribute_strategy
    if sharded is None and not _needs_shards(model):
        return False
    if sharded is False:
        return False
    strangers = _without(strategy, path)
    if not strangers:
        return True
    which = f"{', '.join(map(str, strangers))}, which don't see the files of worker 0"
    if sharded:
        raise InputError(
            "With sharded=True all workers must share the directory of "
            f"checkpoints. Received: {path}, and workers {which} there; choose "
            "a folder on a file system that all share, or sharded=False"
        )
    logging.warning(
        "Checkpoint: the first worker writes all parts, since %s is not shared "
        "with workers %s. A folder that all workers share needs less memory "
        "and time; sharded=False hides this line.",
        path,
        which,
    )
    return False


@contextlib.contextmanager
def _probe(folder: Place) -> Iterator[Place]:
    """Context with an empty file in a folder."""
    if isinstance(folder, StorePath):
        with folder.probe() as file:
            yield file
        return
    with tempfile.NamedTemporaryFile(dir=folder, prefix=TEMPORARY) as local:
        yield pathlib.Path(local.name)


def _needs_shards(model: keras.Model) -> bool:
    """Whether variables are divided between workers, and large."""
    listed, _ = training_state.variables(model)
    variables = [variable for _, variable in listed]
    return sum(map(whole_bytes, variables)) >= SHARDED_BYTES and any(
        isinstance(one.value, ShardedVariable)
        and one.value.is_divided_between_workers
        for one in variables
    )


def _without(strategy: tf.distribute.Strategy, path: Place) -> list[int]:
    """Returns the workers that don't see the first one's files; collective."""
    if workers.count(strategy) == 1:
        return []
    with contextlib.ExitStack() as stack:
        name = b""
        if workers.is_first(strategy):
            name = stack.enter_context(_probe(path)).name.encode()
        seen = path / workers.broadcast(strategy, name).decode()
        found = workers.gather(strategy, [seen.exists()])[:, 0]
    return [worker for worker, sees in enumerate(found) if not sees]
