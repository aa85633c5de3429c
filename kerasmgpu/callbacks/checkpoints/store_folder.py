"""A `Folder` in an object store, which has neither renames nor fsync.

checkpoint-000003-000000120.npz    put whole, or not at all
checkpoint-000004-000000000/       parts, then `index.npz`, the commit marker
committed.json                     names of the checkpoints

`committed.json` is written after each checkpoint and read by its name: a
listing may not have the newest one yet, or still have a deleted one. A
checkpoint is what either of them names and is there.
"""

import json
from collections.abc import Iterable
from typing import Any

from kerasmgpu.callbacks.checkpoints import stored
from kerasmgpu.callbacks.checkpoints.folder import (
    DAMAGED,
    NAME,
    Folder,
    is_whole,
)
from kerasmgpu.errors import InputError
from kerasmgpu.stores.places import Place
from kerasmgpu.stores.store_path import StorePath

COMMITTED = "committed.json"


class StoreFolder(Folder):
    """Writes checkpoints into an object store, and deletes old ones."""

    def __init__(self, path: StorePath, keep: int) -> None:
        self.path: StorePath = path
        self.keep = keep
        self._own: list[str] = []

    def prepare(self) -> None:
        """Removes the parts of a killed run's unfinished checkpoint.

        Raises:
            InputError: If the store can't be written.
        """
        try:
            self.path.require_writable()
            for path in self.path.glob("checkpoint-*"):
                # A file is whole, or isn't there.
                is_folder = not path.name.endswith(".npz")
                if NAME.fullmatch(path.name) and is_folder:
                    if not is_whole(path):
                        path.remove_files()
        except OSError as error:
            raise InputError(
                "The directory of checkpoints can't be written. Received: "
                f"{self.path} ({error.strerror}); check the bucket's name, and "
                "the credentials and the endpoint in this process's environment"
            ) from error

    def put_aside(self, names: Iterable[str]) -> None:
        names = list(names)
        for name in names:
            aside = self.path / f"{DAMAGED}{name}"
            aside.remove_files()
            (self.path / name).rename(aside)
        if names:
            self._commit(path.name for path in self.files())

    def _names(self) -> Iterable[str]:
        listed = [path.name for path in self.path.glob("checkpoint-*")]
        try:
            text = (self.path / COMMITTED).read_text()
            committed = [str(name) for name in json.loads(text)]
        except (FileNotFoundError, TypeError, ValueError):
            committed = []  # None yet, or a file of something else.
        return {*listed, *committed, *self._own}

    def write_part(self, name: str, worker: int, *args: Any) -> None:
        if worker == 0:  # Of a run that had come as far, there is one.
            (self.path / name / stored.INDEX).unlink()
        super().write_part(name, worker, *args)

    def _unfinished(self, name: str) -> Any:
        return self.path / name

    def _finish(self, folder: Any, name: str) -> None:
        """Nothing to do: the index is there."""

    def _delete_old(self, name: str, best: str | None) -> None:
        self._own.append(name)
        files = self.files()
        old = [
            path
            for path in files[: -self.keep]
            if path.name not in (name, best)
        ]
        self._own = [path.name for path in files if path not in old]
        self._commit(self._own)
        for path in old:
            _delete(path)

    def _commit(self, names: Iterable[str]) -> None:
        text = json.dumps(sorted(names))
        (self.path / COMMITTED).write_bytes(text.encode())


def folder_at(path: Place, keep: int) -> Folder:
    """Returns the `Folder` of a local path, or that of an object store."""
    if isinstance(path, StorePath):
        return StoreFolder(path, keep)
    return Folder(path, keep)


def _delete(path: StorePath) -> None:
    if path.name.endswith(".npz"):
        path.unlink()
        return
    # Without its index it is no checkpoint.
    (path / stored.INDEX).unlink()
    path.remove_files()
