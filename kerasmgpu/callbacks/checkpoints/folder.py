"""Manages the checkpoints of a run: writes atomically, keeps last and best.

checkpoint-000003-000000120.npz           in epoch 3, after 120 steps
checkpoint-000004-000000000.npz           between epochs 3 and 4
checkpoint-000004-000000000/              the same, sharded; see `stored.py`
damaged-checkpoint-000004-000000010.npz   damaged, renamed
.tmp-checkpoint-…                         being written, or deleted

`store_folder.py` is the same in an object store.
"""

import contextlib
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from kerasmgpu.atomic_files import TEMPORARY, atomic_write
from kerasmgpu.callbacks.checkpoints import file_format, stored
from kerasmgpu.errors import InputError
from kerasmgpu.stores.places import Place, peeked

DAMAGED = "damaged-"
NAME = re.compile(r"checkpoint-(\d+)-(\d+)(\.npz)?")


def file_name(epoch: int, step: int, is_sharded: bool = False) -> str:
    """Returns a checkpoint's name, for `epoch` (from 0) after `step` steps.

    That of a folder, if `is_sharded`.
    """
    ending = "" if is_sharded else ".npz"
    return f"checkpoint-{epoch:06d}-{step:09d}{ending}"


class Folder:
    """Writes checkpoints atomically and deletes old ones.

    Args:
        path: String or path-like; `prepare` creates it if missing.
    """

    path: Any  # A `pathlib.Path`; of a subclass, another `Place`.

    def __init__(self, path: str | os.PathLike[str], keep: int) -> None:
        self.path = pathlib.Path(path)
        self.keep = keep

    def prepare(self) -> None:
        """Creates the folder and removes a killed run's temporary files.

        Raises:
            InputError: If the folder can't be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
            for left_over in self.path.glob(f"{TEMPORARY}*"):
                name = left_over.name.removeprefix(TEMPORARY)
                if _is_of_checkpoint(left_over, name):
                    _delete(left_over)
        except OSError as error:
            raise InputError(
                "The directory of checkpoints can't be written. Received: "
                f"{self.path} ({error.strerror}); choose one that you may write"
            ) from error

    def files(self) -> list[Any]:
        """Returns the checkpoints' paths, sorted by epoch and step."""
        found = []
        for name in self._names():
            match = NAME.fullmatch(name)
            if match and is_whole(self.path / name):
                found.append((int(match[1]), int(match[2]), name))
        return [self.path / name for _, _, name in sorted(found)]

    def _names(self) -> Iterable[str]:
        """Returns the names of what may be checkpoints."""
        return [path.name for path in self.path.glob("checkpoint-*")]

    def before(self, name: str) -> str | None:
        """Returns the name of the checkpoint before one, or `None`."""
        names = [path.name for path in self.files()]
        place = names.index(name) if name in names else 0
        return names[place - 1] if place else None

    def put_aside(self, names: Iterable[str]) -> None:
        """Renames damaged checkpoints, so that later runs skip them."""
        for name in names:
            aside = self.path / f"{DAMAGED}{name}"
            if aside.is_dir():
                shutil.rmtree(aside)
            os.replace(self.path / name, aside)

    def write(
        self,
        name: str,
        manifest: dict[str, Any],
        arrays: Iterable[np.ndarray],
        dtypes: Sequence[str] | None = None,
        best: str | None = None,
    ) -> None:
        """Writes a checkpoint, then deletes the oldest ones beyond `keep`.

        See `file_name` and `file_format.write` for what is written.

        Args:
            best: Name of a checkpoint that is not deleted, or `None`.

        Raises:
            OSError: If it can't be written; nothing is deleted then.
        """
        with _written(self.path / name) as file:
            file_format.write(file, manifest, arrays, dtypes)
        self._delete_old(name, best)

    def write_part(
        self,
        name: str,
        worker: int,
        pieces: Sequence[tuple[int, Sequence[int], Sequence[int]]],
        arrays: Iterable[np.ndarray],
        dtypes: Sequence[str] | None = None,
    ) -> None:
        """Writes a worker's part of a sharded checkpoint; `commit` ends it.

        Args:
            pieces: For each array, its variable's index, its first element
                along each axis, and its shape.
        """
        folder = self._unfinished(name)
        with _written(folder / stored.part_name(worker)) as file:
            file_format.write(file, {"pieces": pieces}, arrays, dtypes)

    def commit(
        self,
        name: str,
        num_workers: int,
        manifest: dict[str, Any],
        extra: list[np.ndarray],
        best: str | None = None,
    ) -> None:
        """Ends a sharded checkpoint, of which all parts are written.

        Args:
            extra: List of the NumPy arrays that are no variables.
        """
        folder = self._unfinished(name)
        sha256s, pieces = [], []
        for worker in range(num_workers):
            with peeked(folder / stored.part_name(worker)) as part:
                reader = file_format.Reader(part)
            sha256s.append(reader.sha256)
            dtypes = reader.manifest["dtypes"]
            listed = zip(reader.manifest["pieces"], dtypes)
            for array, ((variable, start, shape), dtype) in enumerate(listed):
                pieces.append([variable, worker, array, start, shape, dtype])
        manifest = {**manifest, "sha256s": sha256s, "pieces": pieces}
        with _written(folder / stored.INDEX) as file:
            file_format.write(file, manifest, extra)
        self._finish(folder, name)
        self._delete_old(name, best)

    def _unfinished(self, name: str) -> Any:
        """Returns the folder for the parts of a checkpoint; creates it."""
        folder = self.path / f"{TEMPORARY}{name}"
        folder.mkdir(exist_ok=True)
        return folder

    def _finish(self, folder: Any, name: str) -> None:
        """Makes a folder with all parts and an index a checkpoint."""
        if (self.path / name).exists():  # Of a run that had come as far.
            self.put_aside([name])
        os.rename(folder, self.path / name)
        _sync(self.path)

    def _delete_old(self, name: str, best: str | None) -> None:
        """Deletes the oldest checkpoints beyond `keep`."""
        for path in self.files()[: -self.keep]:
            if path.name not in (name, best):
                _delete(path)


def is_whole(path: Place) -> bool:
    """Whether a checkpoint is complete, by its name: a file or an index."""
    is_file = path.name.endswith(".npz")
    return (path if is_file else path / stored.INDEX).is_file()


def _is_of_checkpoint(path: pathlib.Path, name: str) -> bool:
    """Whether a path is a file, or a folder, with a checkpoint's name."""
    if not NAME.fullmatch(name):
        return False
    return path.is_file() if name.endswith(".npz") else path.is_dir()


def _delete(path: pathlib.Path) -> None:
    if path.is_file():
        path.unlink()
        return
    # A folder that is half deleted is no checkpoint.
    if not path.name.startswith(TEMPORARY):
        path = path.rename(path.with_name(f"{TEMPORARY}{path.name}"))
    shutil.rmtree(path)


@contextlib.contextmanager
def _written(path: Place) -> Iterator[IO[bytes]]:
    """Context with a file that is on disk, at `path`, when it ends."""
    with atomic_write(path) as temporary:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    if isinstance(path, pathlib.Path):
        _sync(path.parent)


def _sync(folder: pathlib.Path) -> None:
    """Calls fsync on a folder, to put a rename on disk; POSIX only."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
