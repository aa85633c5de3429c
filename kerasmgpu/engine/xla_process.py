"""The folder of this process in which TensorFlow keeps what XLA compiles.

Checked on TensorFlow 2.18 and 2.21, whose `device_executable_persistor.h` says
what it does: a file is written under another name, then renamed; its name has a
hash of the function's name, of its arguments and of what XLA is given, and the
type of the device.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
import threading
import time
from collections.abc import Collection

from absl import logging

from kerasmgpu.atomic_files import TEMPORARY
from kerasmgpu.engine import exit_waits
from kerasmgpu.engine.xla_files import XlaFiles, function_in

NAME = "kerasmgpu_xla_"
"""Start of the names of such folders."""

LEAST_FREE = 256 << 20
"""Bytes that must be free where TensorFlow writes."""

LOCK = ".lock"
"""File that a folder's process has locked, as long as it lives."""

_SECONDS = 2.0
"""Between two looks for new files."""

_FOREIGN_SECONDS = 60.0
"""After which a file of another function is removed: all devices have read it."""


class XlaProcess:
    """This process's folder, in which TensorFlow keeps what XLA compiles."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._pid = os.getpid()
        self._lock = locked(folder)
        self._known: set[str] = set()
        self._done: set[str] = set()
        self._waiting: set[str] = set()
        self._number, self._shown = 0, 0
        self._files: XlaFiles | None = None
        self._ahead: list[str] | None = None
        self._compiled = 0
        self._error: OSError | None = None
        self._copying = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        exit_waits.add(self._finish)

    def expect(
        self,
        functions: Collection[str],
        files: XlaFiles | None,
        ahead: list[str] | None = None,
    ) -> bool:
        """Gives TensorFlow the files of functions that it will compile.

        Args:
            files: `XlaFiles` to take them from, and to keep others in; `None`
                to go on with the former ones.
            ahead: Commands that have filled the folder, if it was filled ahead.

        Returns:
            Boolean, whether some have none.
        """
        with self._copying:
            self._files = files or self._files
            self._ahead = ahead
            if files is not None:
                linked = files.link(functions, self.folder)
                self._known.update(linked)
                self._done.update(linked.values())
            self._waiting.update(functions)
            self._waiting -= self._done
            self._number, self._shown = len(self._waiting), 0
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._watch, name="kerasmgpu XLA cache", daemon=True
            )
            self._thread.start()
        return self._number > 0

    @property
    def done(self) -> set[str]:
        """Functions of which this process has a program."""
        with self._copying:
            return set(self._done)

    def take(self, file: pathlib.Path, function: str) -> None:
        """Gives TensorFlow a program that another process has compiled."""
        with self._copying:
            self._known.add(file.name)
            self._done.add(function)
            self._waiting.discard(function)
        own = self.folder / file.name
        try:
            with contextlib.suppress(FileExistsError):
                # One that is kept already is a link, and becomes another one.
                os.link(file, own, follow_symlinks=False)
        except OSError:  # On another file system.
            copy = own.with_name(f"{TEMPORARY}{file.name}")
            shutil.copyfile(file, copy)
            os.replace(copy, own)

    def _watch(self) -> None:
        while not self._stop.wait(_SECONDS):
            self._keep_new()
            left = len(self._waiting)
            if left not in (0, self._shown):
                self._shown = left
                logging.info(
                    "kerasmgpu: compiling %d clusters with XLA: %d of %d.",
                    self._number,
                    self._number - left,
                    self._number,
                )

    def keep_now(self) -> int:
        """Keeps what has been compiled; see `xla_cache.keep_now`."""
        self._keep_new()
        if self._error is not None:
            raise self._error
        return self._compiled

    def _keep_new(self) -> None:
        """Keeps files that TensorFlow has written, outside of any step."""
        with self._copying:
            new = set(self.folder.glob("*.pb"))
            new = {file for file in new if file.name not in self._known}
            for file in new:
                try:
                    self._keep(file)
                except OSError as error:
                    self._error = error
                    logging.log_first_n(
                        logging.WARNING,
                        "kerasmgpu: what XLA compiles is no longer kept for "
                        "the next start: %s",
                        1,
                        error,
                    )
                    self._files = None
            if new and self._files is not None:
                with contextlib.suppress(OSError):
                    self._files.trim()

    def _keep(self, file: pathlib.Path) -> None:
        function = function_in(file)
        if function is None:
            if time.time() - file.stat().st_mtime > _FOREIGN_SECONDS:
                file.unlink()
            return
        self._known.add(file.name)
        self._done.add(function)
        self._waiting.discard(function)
        self._compiled += 1
        if self._ahead is not None:
            logging.log_first_n(
                logging.WARNING,
                "kerasmgpu: XLA compiles what is not in the folder that was "
                "filled by `kerasmgpu compile %s`: rows, settings or the "
                "program differ.",
                1,
                "`, `".join(self._ahead),
            )
        if self._files is not None:
            self._files.keep(file, function)

    def _finish(self) -> None:
        if os.getpid() != self._pid:  # In a fork.
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._keep_new()
        shutil.rmtree(self.folder, ignore_errors=True)


def new_folder() -> pathlib.Path | None:
    """Returns a new folder for TensorFlow, in memory if there is room.

    `None` if less than `LEAST_FREE` bytes are free wherever it can be.
    """
    for parent in ("/dev/shm", tempfile.gettempdir()):
        with contextlib.suppress(OSError):
            remove_abandoned(pathlib.Path(parent))
            if shutil.disk_usage(parent).free >= LEAST_FREE:
                return pathlib.Path(tempfile.mkdtemp(prefix=NAME, dir=parent))
    return None


def locked(folder: pathlib.Path) -> int:
    """Locks a folder for as long as this process lives."""
    descriptor = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def remove_abandoned(parent: pathlib.Path) -> None:
    """Removes folders of processes of this user that were killed."""
    for lock in parent.glob(f"{NAME}*/{LOCK}"):
        try:
            descriptor = os.open(lock, os.O_RDWR)
        except OSError:  # Another user's, or just removed.
            continue
        with contextlib.suppress(OSError), os.fdopen(descriptor):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
