"""The folder of one run: what was asked, what happened, what came out.

    flags.txt           the flags as run, a flag file
    history.jsonl       one line per epoch
    checkpoint-000012/  weights, optimizer, seeds, history after epoch 12
    model.keras         the trained model
    learning_curve.png  where matplotlib is installed
    result.json         the figures of the final table

Every file and every checkpoint is written under a temporary name and renamed
when it is complete: a run that is killed at any moment leaves only whole ones.
"""

import atexit
import contextlib
import datetime
import fcntl
import json
import os
import pathlib
import shutil
import socket

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import shared_flags

_TEMPORARY = ".tmp-"
_LOCK = ".lock"
_OWN = ("checkpoint-", "flags.txt", "history.jsonl", "model.keras", "probe")
# These say where a run is kept and how it was started, not what it computes.
_NOT_COMPARED = ("output_dir", "resume")


class RunFolder:
    """Opens the folder of a run, or refuses before anything is trained.

    Args:
        path: The folder, made where it is missing; or `None`, in which case
            nothing is ever written.
        settings: The settings of the run; see `shared_flags.settings`.
            `settings.resume` says whether a run that is there goes on.

    Raises:
        InputError: If the folder can't be written, if another process has a
            run there, if it holds another run (or any other file) and `resume`
            is not set, or if a flag differs from that of the run that is to go
            on.
    """

    def __init__(self, path, settings):
        self.path = None if path is None else pathlib.Path(path)
        if self.path is None:
            return
        self._require_writable()
        if (self.path / _LOCK).exists():
            _lock(self.path)
        self._lines = shared_flags.as_flags(settings)
        for name in _NOT_COMPARED:
            self._lines.pop(name, None)
        if self._entries():
            self._require_same_run(settings.resume, self._lines)
            self._remove_incomplete()

    def start(self):
        """Writes the flags: from here on the folder holds a run.

        Call it when settings and data are known to be good, so that what is
        refused before leaves an empty folder, to be used again.
        """
        if self.path is None:
            return
        _lock(self.path)
        if not self._entries():
            self.write("flags.txt", "\n".join(self._lines.values()) + "\n")

    def write(self, name, text):
        """Writes the text file `name` in one piece."""
        with self.complete(name) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def write_json(self, name, value):
        """Writes `value` as the JSON file `name`."""
        self.write(name, json.dumps(value, indent=2) + "\n")

    def write_history(self, history):
        """Writes `history.jsonl`: one JSON object per finished epoch."""
        lines = [json.dumps(record) + "\n" for record in history]
        self.write("history.jsonl", "".join(lines))

    @contextlib.contextmanager
    def complete(self, name):
        """Context whose path becomes `name` if the block ends without error.

        The path keeps the ending of `name`, by which Keras and matplotlib
        choose a format. Without a folder the block must not run: ask `path`.
        """
        temporary = self.path / f"{_TEMPORARY}{name}"
        yield temporary
        # A file replaces its predecessor; a folder has a name of its own.
        os.replace(temporary, self.path / name)

    def save_checkpoint(self, epoch, history, save_state):
        """Keeps the state after `epoch` and drops the checkpoint before it.

        Args:
            epoch: Number of finished epochs.
            history: List of the records of all finished epochs.
            save_state: Function of a folder, in which it writes the state.
        """
        name = f"checkpoint-{epoch:06d}"
        earlier = self._checkpoints()
        with self.complete(name) as temporary:
            temporary.mkdir()
            save_state(temporary)
            (temporary / "history.json").write_text(
                json.dumps(history), encoding="utf-8"
            )
        for old in earlier:
            # Renamed first: a half-deleted checkpoint must not look whole.
            doomed = old.with_name(f"{_TEMPORARY}{old.name}")
            os.replace(old, doomed)
            shutil.rmtree(doomed)
        self.write_history(history)

    def last_checkpoint(self):
        """Folder and history of the last whole checkpoint.

        Returns:
            `(folder, history)`, or `(None, [])` where there is none.
        """
        if self.path is None or not self._checkpoints():
            return None, []
        folder = self._checkpoints()[-1]
        return folder, self.read_json(f"{folder.name}/history.json")

    def read_json(self, name):
        """The value of the JSON file `name`.

        Raises:
            InputError: If it is damaged.
        """
        with self.reading(name) as path:
            return json.loads(path.read_text("utf-8"))

    @contextlib.contextmanager
    def reading(self, name):
        """Context with the path of a file of the run, to be read there.

        Raises:
            InputError: If what reads it fails.
        """
        path = self.path / name
        try:
            yield path
        except (OSError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"{path} is damaged ({reason}), so the run there can't go on; "
                "start it anew in another --output_dir"
            ) from error

    def _checkpoints(self):
        return sorted(self.path.glob("checkpoint-*"))

    def _remove_incomplete(self):
        """Removes what a run left half-written when it was killed."""
        for name in _OWN:
            for entry in self.path.glob(f"{_TEMPORARY}{name}*"):
                if entry.is_dir():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()

    def _entries(self):
        return sorted(
            entry.name
            for entry in self.path.iterdir()
            if not entry.name.startswith(_TEMPORARY) and entry.name != _LOCK
        )

    def _require_writable(self):
        probe = self.path / f"{_TEMPORARY}probe"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise InputError(
                f"--output_dir can't be written. Received: {self.path} "
                f"({error.strerror}); choose a folder that you may write"
            ) from error

    def _require_same_run(self, resume, lines):
        if not resume:
            raise InputError(
                f"--output_dir is not empty. Received: {self.path}, which "
                f"holds {', '.join(self._entries()[:3])}; choose another "
                "folder, or go on with the run there with --resume"
            )
        path = self.path / "flags.txt"
        if not path.is_file():
            raise InputError(
                f"--resume found no run (no flags.txt). Received: {self.path}; "
                "choose the folder of a run, or an empty one"
            )
        with self.reading("flags.txt"):
            first = path.read_text("utf-8").splitlines()
        first = shared_flags.deciding(first)
        for line in [*first, *lines.values()]:
            if line in first and line in lines.values():
                continue
            name = line[2:].partition("=")[0]
            before = [old for old in first if old.startswith(f"--{name}=")]
            raise InputError(
                f"--resume goes on with the flags of the first run. Received: "
                f"{lines.get(name, f'no --{name}')}; the first run had "
                f"{before[0] if before else f'no --{name}'}"
            )


_locks = {}
"""Folders that this process has a run in to their open lock files."""


def _lock(folder):
    """Keeps other processes out of a folder until this one ends.

    Raises:
        InputError: If another process has it.
    """
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


def _unlock(path, owner):
    if os.getpid() == owner:  # Not in a child that was forked.
        path.unlink(missing_ok=True)
