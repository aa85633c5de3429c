"""Manages the checkpoints of a run: writes atomically, keeps last and best.

checkpoint-000003-000000120.npz           in epoch 3, after 120 steps
checkpoint-000004-000000000.npz           between epochs 3 and 4
damaged-checkpoint-000004-000000010.npz   damaged, renamed
.tmp-checkpoint-…                         being written
"""

import os
import pathlib
import re
import tempfile
from typing import Any

import numpy as np
from absl import logging

from kerasmgpu.atomic_files import TEMPORARY, atomic_write
from kerasmgpu.callbacks.checkpoints import file_format
from kerasmgpu.errors import InputError

_DAMAGED = "damaged-"
_NAME = re.compile(r"checkpoint-(\d+)-(\d+)\.npz")


def file_name(epoch: int, step: int) -> str:
    """Returns the file name for `epoch` (from 0) after `step` of its steps."""
    return f"checkpoint-{epoch:06d}-{step:09d}.npz"


class Folder:
    """Writes checkpoints atomically and deletes old ones.

    Args:
        path: String or path-like; `prepare` creates it if missing.
        keep: Integer, number of recent checkpoints to keep.
    """

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
                if _NAME.fullmatch(name) and left_over.is_file():
                    left_over.unlink()
        except OSError as error:
            raise InputError(
                "The directory of checkpoints can't be written. Received: "
                f"{self.path} ({error.strerror}); choose one that you may write"
            ) from error

    def files(self) -> list[pathlib.Path]:
        """Returns the checkpoints' paths, sorted by epoch and step."""
        found = {}
        for path in self.path.glob("checkpoint-*.npz"):
            match = _NAME.fullmatch(path.name)
            if match and path.is_file():
                found[tuple(map(int, match.groups()))] = path
        return [found[position] for position in sorted(found)]

    def newest_whole(self) -> pathlib.Path | None:
        """Returns the newest undamaged checkpoint's path; `None` without any.

        Newer checkpoints, all damaged, are logged and renamed, so that later
        calls skip them.

        Raises:
            InputError: If there are checkpoints and all of them are damaged.
        """
        damaged = []
        for path in reversed(self.files()):
            try:
                with open(path, "rb") as file:
                    file_format.Reader(file).verify()
            except file_format.DamagedFileError as error:
                logging.warning(
                    "%s is damaged (%s): trying the checkpoint before it.",
                    path,
                    error,
                )
                damaged.append(path)
                continue
            for bad in damaged:
                os.replace(bad, bad.with_name(f"{_DAMAGED}{bad.name}"))
            return path
        if damaged:
            raise InputError(
                f"All {len(damaged)} checkpoints in {self.path} are damaged. "
                "Move them away to start from the beginning, or restore a copy"
            )
        return None

    def write(
        self,
        name: str,
        manifest: dict[str, Any],
        arrays: list[np.ndarray],
        best: str | None = None,
    ) -> None:
        """Writes a checkpoint, then deletes the oldest ones beyond `keep`.

        Args:
            name: See `file_name`.
            manifest: See `file_format.write`.
            arrays: See `file_format.write`.
            best: Name of a checkpoint that is not deleted, or `None`.

        Raises:
            OSError: If it can't be written; nothing is deleted then.
        """
        with atomic_write(self.path / name) as temporary:
            with open(temporary, "wb") as file:
                file_format.write(file, manifest, arrays)
                file.flush()
                os.fsync(file.fileno())
        self._sync()
        for path in self.files()[: -self.keep]:
            if path.name not in (name, best):
                path.unlink()

    def _sync(self) -> None:
        """Calls fsync on the folder, to put the rename on disk; POSIX only."""
        if os.name != "posix":
            return
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
