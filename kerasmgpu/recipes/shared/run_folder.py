"""The folder of one run: what was asked, what happened, what came out.

    flags.txt           the flags as run, a flag file
    history.jsonl       one line per epoch
    checkpoints/        the last three of `kerasmgpu.callbacks.Checkpoint`
    model.keras         the trained model
    learning_curve.png  where matplotlib is installed
    result.json         the figures of the final table

Files are replaced atomically: a killed run leaves only whole ones.
"""

import atexit
import contextlib
import datetime
import fcntl
import json
import os
import pathlib
import re
import socket
import tempfile

from kerasmgpu import atomic_files
from kerasmgpu.commands import plots
from kerasmgpu.errors import InputError
from kerasmgpu.job import cluster
from kerasmgpu.recipes.shared import shared_flags

_LOCK = ".lock"
# Folders of checkpoints, as versions before 0.2 wrote them.
_OLD_CHECKPOINT = re.compile(r"checkpoint-\d{6}")
# These say where a run is kept and how it was started, not what it computes.
_NOT_KEPT = ("output_dir", "resume")


def require_place(settings, **options):
    """Refuses a malformed job or an unusable folder before TensorFlow starts.

    Without matplotlib one line says that the folder gets no plot. `options` are
    keywords of `RunFolder`.
    """
    if cluster.is_first_worker():
        RunFolder(settings.output_dir, settings, **options)
        tell_if_no_plots(settings)


def tell_if_no_plots(settings):
    """Prints one line if a run's folder gets no plot: matplotlib is missing."""
    if settings.output_dir is not None and cluster.is_first_worker():
        plots.tell_if_missing()


class RunFolder:
    """Opens the folder of a run, or refuses before anything is trained.

    Args:
        path: The folder, made where it is missing; or `None`: nothing is ever
            written.
        settings: The settings of the run; `settings.resume` says whether a
            run that is there goes on.
        may_grow: Flags that may be larger than in that run, unless
            `settings.learning_rate_decay` is over the whole length.

    Raises:
        InputError: If the folder can't be written, if another process has a
            run there, if it holds another run (or any other file) and `resume`
            is not set, if a flag differs from that of the run that is to go
            on, or if an earlier version has written its checkpoints.
    """

    def __init__(self, path, settings, may_grow=("epochs", "steps")):
        self.path = None if path is None else pathlib.Path(path)
        if self.path is None:
            return
        self._require_writable()
        if (self.path / _LOCK).exists():
            _lock(self.path)
        self._lines = shared_flags.as_flags(settings)
        for name in _NOT_KEPT:
            self._lines.pop(name, None)
        if self._entries():
            self._require_resume(settings.resume)
            self._require_same_run(settings, may_grow)

    def start(self):
        """Writes the flags: from here on the folder holds a run.

        Call it when settings and data are known to be good: what is refused
        before leaves an empty folder, to be used again.
        """
        if self.path is not None:
            _lock(self.path)
            if not self._entries():
                self.keep_flags()

    def keep_flags(self):
        """Writes the flags as they are now, of a longer run say."""
        if self.path is not None:
            self.write("flags.txt", "\n".join(self._lines.values()) + "\n")

    def write(self, name, text):
        """Writes the text file `name` atomically."""
        with self.complete(name) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def write_json(self, name, value):
        """Writes `value` as the JSON file `name`."""
        self.write(name, json.dumps(value, indent=2) + "\n")

    def complete(self, name):
        """Context whose path becomes `name` if the block ends without error."""
        return atomic_files.atomic_write(self.path / name)

    def read_json(self, name):
        """The value of a JSON file; raises `InputError` if it is damaged."""
        with self._reading(name) as path:
            return json.loads(path.read_text("utf-8"))

    @contextlib.contextmanager
    def _reading(self, name):
        path = self.path / name
        try:
            yield path
        except (OSError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"{path} is damaged ({reason}), so the run there can't go on; "
                "start it anew in another --output_dir"
            ) from error

    def _entries(self):
        return sorted(
            entry.name
            for entry in self.path.iterdir()
            if not entry.name.startswith(atomic_files.TEMPORARY)
            and entry.name != _LOCK
        )

    def _require_writable(self):
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise InputError(
                f"--output_dir can't be written. Received: {self.path} "
                f"({error.strerror}); choose a folder that you may write"
            ) from error

    def _require_resume(self, resume):
        entries = self._entries()
        if not resume:
            raise InputError(
                f"--output_dir is not empty. Received: {self.path}, which "
                f"holds {', '.join(entries[:3])}; choose another folder, or "
                "go on with the run there with --resume"
            )
        if not (self.path / "flags.txt").is_file():
            raise InputError(
                f"--resume found no run (no flags.txt). Received: {self.path}; "
                "choose the folder of a run, or an empty one"
            )
        old = list(filter(_OLD_CHECKPOINT.fullmatch, entries))
        if old:
            raise InputError(
                f"--resume can't read {self.path / old[-1]}, which an earlier "
                "version of kerasmgpu has written. Nothing was changed; go on "
                "with that version, or start anew in another --output_dir"
            )

    def _require_same_run(self, settings, may_grow):
        with self._reading("flags.txt") as path:
            lines = path.read_text("utf-8").splitlines()
        first = {line[2:].partition("=")[0]: line for line in lines}
        first = shared_flags.deciding(first)
        decay = getattr(settings, "learning_rate_decay", "none")
        for name in [*first, *self._lines]:
            before, now = first.get(name), self._lines.get(name)
            # How long epochs are is what their checkpoints know.
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
                "--resume goes on with the flags of the first run. Received: "
                f"{now or f'no --{name}'}; the first run had "
                f"{before or f'no --{name}'}{hint}"
            )


def _is_more(now, before):
    """Whether a flag has a larger integer than before."""
    values = [(line or "").partition("=")[2] for line in (before, now)]
    return all(map(str.isdecimal, values)) and int(values[0]) < int(values[1])


_locks = {}
"""Folders that this process has a run in to their open lock files."""


def _lock(folder):
    """Keeps other processes out of a folder until this one ends."""
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
