"""The folder of one run: its flags, its progress and its results.

    flags.txt           the flags as run, a flag file
    history.jsonl, steps.jsonl, run.json, devices.jsonl
                        for `kerasmgpu report`: written by `RunRecord` and
                        `DeviceStats` of `kerasmgpu.callbacks`
    hangs.txt           where workers were when no step ended, if ever
    tensorboard/        with --tensorboard or --profile
    checkpoints/        the last three of `kerasmgpu.callbacks.Checkpoint`
    model.keras         the trained model
    learning_curve.png  where matplotlib is installed
    result.json         the figures of the final table

Files are replaced atomically: a killed run leaves no half-written one.
"""

import atexit
import datetime
import fcntl
import json
import os
import pathlib
import re
import socket
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from kerasmgpu import atomic_files
from kerasmgpu.commands import plots
from kerasmgpu.errors import InputError, one_line
from kerasmgpu.job import cluster
from kerasmgpu.recipes.shared import shared_flags
from kerasmgpu.stores.places import Place, checked_place
from kerasmgpu.stores.store_path import StorePath

_LOCK = ".lock"
# Folders of checkpoints, as versions before 0.2 wrote them.
_OLD_CHECKPOINT = re.compile(r"checkpoint-\d{6}")


def require_place(settings: SimpleNamespace, **options: Any) -> None:
    """Refuses a malformed job or an unusable folder before TensorFlow starts.

    Prints a line if matplotlib is missing for the folder's plot. `options` are
    keywords of `RunFolder`.
    """
    if cluster.is_first_worker() and settings.output_dir is not None:
        RunFolder(settings.output_dir, settings, **options)
        plots.tell_if_missing()


class RunFolder:
    """Opens the folder of a run, or refuses it before anything is trained.

    A missing folder is created; with `path=None` nothing is written. With
    `settings.resume` an earlier run in the folder is continued, with the same
    flags. Without a `settings.learning_rate_decay`, which depends on the length
    of the run, those in `may_grow` may be larger than before.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        settings: SimpleNamespace,
        may_grow: tuple[str, ...] = ("epochs", "steps"),
    ) -> None:
        self.path = (
            None if path is None else checked_place(path, "--output_dir")
        )
        if self.path is None:
            return
        self._folder: Place = self.path
        self._require_writable()
        if _is_locked(self.path):
            _lock(self.path)
        # Where a run is kept, and what is seen of it, don't change its results.
        self._lines = shared_flags.as_flags(settings)
        for name in ("output_dir", "resume", *shared_flags.WATCHING):
            self._lines.pop(name, None)
        if entries := self._entries():
            self._require_run(entries, settings.resume)
            self._require_same_flags(settings, may_grow)

    def start(self) -> None:
        """Locks the folder and writes the flags of a new run.

        Call it when settings and data have been checked: until then an empty
        folder stays empty.
        """
        if self.path is not None:
            _lock(self.path)
            if not self._entries():
                self.keep_flags()

    def keep_flags(self) -> None:
        """Writes `flags.txt`; a continued, longer run replaces it."""
        if self.path is not None:
            self.write("flags.txt", "\n".join(self._lines.values()) + "\n")

    def write(self, name: str, text: str) -> None:
        """Writes the text file `name` atomically."""
        atomic_files.write_text(self._folder / name, text)

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, json.dumps(value, indent=2) + "\n")

    def complete(self, name: str) -> AbstractContextManager[pathlib.Path]:
        """Context with a path that becomes `name` if the block succeeds."""
        return atomic_files.atomic_write(self._folder / name)

    def read_json(self, name: str) -> Any:
        """The value of a JSON file; raises `InputError` if it is damaged."""
        return self._read(name, json.loads)

    def _read(self, name: str, parse: Callable[[str], Any]) -> Any:
        path = self._folder / name
        try:
            return parse(path.read_text("utf-8"))
        except (OSError, ValueError, KeyError) as error:
            reason = one_line(error, 200)
            raise InputError(
                f"{path} is damaged ({reason}), so the run there can't go on; "
                "start it anew in another --output_dir"
            ) from error

    def _entries(self) -> list[str]:
        ignored = (atomic_files.TEMPORARY, _LOCK)
        names = sorted(entry.name for entry in self._folder.iterdir())
        return [name for name in names if not name.startswith(ignored)]

    def _require_writable(self) -> None:
        try:
            if isinstance(self._folder, StorePath):
                self._folder.require_writable()
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self._folder).close()
        except OSError as error:
            raise InputError(
                f"--output_dir can't be written. Received: {self._folder} "
                f"({error.strerror}); choose a folder that you may write"
            ) from error

    def _require_run(self, entries: list[str], resume: bool) -> None:
        if not resume:
            raise InputError(
                f"--output_dir is not empty. Received: {self._folder}, which "
                f"holds {', '.join(entries[:3])}; choose another folder, or "
                "continue the run there with --resume"
            )
        if not (self._folder / "flags.txt").is_file():
            raise InputError(
                f"--resume found no run (no flags.txt). Received: {self._folder}; "
                "choose the folder of a run, or an empty one"
            )
        if old := list(filter(_OLD_CHECKPOINT.fullmatch, entries)):
            raise InputError(
                f"--resume can't read {self._folder / old[-1]}, which an earlier "
                "version of kerasmgpu has written. Nothing was changed; resume "
                "with that version, or start anew in another --output_dir"
            )

    def _require_same_flags(
        self, settings: SimpleNamespace, may_grow: tuple[str, ...]
    ) -> None:
        lines = self._read("flags.txt", str.splitlines)
        first = shared_flags.deciding(
            {line[2:].partition("=")[0]: line for line in lines}
        )
        decay = getattr(settings, "learning_rate_decay", "none")
        for name in [*first, *self._lines]:
            before, now = first.get(name), self._lines.get(name)
            # The checkpoints know the length of an epoch.
            if before == now or name == "steps_per_epoch":
                continue
            hint = ""
            if name in may_grow and _is_more(now, before):
                if decay == "none":
                    continue
                hint = (
                    f", and --learning_rate_decay={decay} is over the whole "
                    "run: start the longer one anew in another --output_dir"
                )
            elif name in may_grow:
                hint = ", which may only be raised"
            raise InputError(
                "--resume needs the flags of the first run. Received: "
                f"{now or f'no --{name}'}; the first run had "
                f"{before or f'no --{name}'}{hint}"
            )


def _is_more(now: str | None, before: str | None) -> bool:
    """Whether the integer of one flag line is larger than another's."""
    values = [(line or "").partition("=")[2] for line in (before, now)]
    return all(map(str.isdecimal, values)) and int(values[0]) < int(values[1])


_locks: dict[pathlib.Path, Any] = {}
"""Folders that this process has a run in, to their open lock files."""


def _is_locked(folder: Place) -> bool:
    return isinstance(folder, pathlib.Path) and (folder / _LOCK).exists()


def _lock(folder: Place) -> None:
    """Keeps other processes out of a folder until this one ends.

    A store has no locks: there, nobody is kept out.
    """
    if isinstance(folder, StorePath):
        return
    folder = folder.resolve()
    if folder in _locks:
        return
    path = folder / _LOCK
    file = open(path, "a+", encoding="utf-8")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read().strip() or error.strerror
        file.close()
        raise InputError(
            f"--output_dir is in use by another run ({holder}). Received: "
            f"{folder}; wait until it has ended, or choose another folder"
        ) from error
    file.truncate(0)
    now = datetime.datetime.now().isoformat(" ", "seconds")
    file.write(f"process {os.getpid()} on {socket.gethostname()} since {now}")
    file.flush()
    _locks[folder] = file
    atexit.register(_unlock, path, os.getpid())


def _unlock(path: pathlib.Path, owner: int) -> None:
    if os.getpid() == owner:  # Not in a child that was forked.
        path.unlink(missing_ok=True)
