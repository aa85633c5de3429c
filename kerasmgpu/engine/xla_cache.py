"""Keeps what XLA compiles, so that a second start compiles nothing.

TensorFlow writes a compiled program to the folder of a flag, and looks there
before it compiles. An error there ends the step: a full disk, or a damaged file.
So its folder is a private one of this process, in memory where there is some;
what is kept is linked there, checked, and copied from there behind the steps.

Checked on TensorFlow 2.18 and 2.21, whose `device_executable_persistor.h` says
what it does: it reads flags when devices are first listed; a file is written
under another name, then renamed; its name has a hash of the function's name, of
its arguments and of what XLA is given, and the type of the device.
"""

import atexit
import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from typing import Any

import tensorflow as tf
from absl import logging

from kerasmgpu.engine.private_names import configuration, tf_session
from kerasmgpu.engine.xla_files import XlaFiles, function_in
from kerasmgpu.errors import InputError

Chosen = str | os.PathLike[str] | bool | None
"""A folder to keep programs in; `False` for none; `None` for the default."""

VARIABLE = "KERASMGPU_XLA_CACHE"
"""Environment variable: the folder, or `0` for none, not even in this process."""

_FLAGS = "TF_XLA_FLAGS"
_DIRECTORY = "--tf_xla_persistent_cache_directory="
_CPU_ONLY = "--tf_xla_persistent_cache_device_types=CPU"
_PROBE = "tf_xla_disable_constant_folding"

_NAME = "kerasmgpu_xla_"
_LOCK = ".lock"
_LEAST_FREE = 256 << 20
"""Bytes that must be free where TensorFlow writes."""

_SECONDS = 2.0
"""Between two looks for new files."""

_FOREIGN_SECONDS = 60.0
"""After which a file of another function is removed: all devices have read it."""

_OF_NUMBERS = (
    "XLA_FLAGS",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_DETERMINISTIC_OPS",
    "TF_CUDNN_DETERMINISTIC",
    "NVIDIA_TF32_OVERRIDE",
)
"""Environment variables on which compiled programs depend."""


class _Process:
    """This process's folder, in which TensorFlow keeps what XLA compiles.

    Args:
        folder: `pathlib.Path` of the folder.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._pid = os.getpid()
        self._lock = _locked(folder)
        self._known: set[str] = set()
        self._done: set[str] = set()
        self._waiting: set[str] = set()
        self._number, self._shown = 0, 0
        self._files: XlaFiles | None = None
        self._copying = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        atexit.register(self._finish)

    def expect(
        self, functions: Collection[str], files: XlaFiles | None
    ) -> bool:
        """Gives TensorFlow the files of functions that it will compile.

        Returns:
            Boolean, whether some have none.
        """
        with self._copying:
            self._files = files or self._files
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

    def _keep_new(self) -> None:
        """Keeps files that TensorFlow has written, outside of any step."""
        with self._copying:
            new = set(self.folder.glob("*.pb"))
            new = {file for file in new if file.name not in self._known}
            for file in new:
                try:
                    self._keep(file)
                except OSError as error:
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


_process: _Process | None = None
_why_not: str | None = None
"""Why TensorFlow keeps nothing for us; empty where the user said so."""

_is_users = False
"""Whether TensorFlow has a folder that the user has set."""

_keeps_of_gpus = False
"""Whether programs of GPUs are kept. Where TensorFlow can't write one, the step
ends with an error; that it can has been seen on CPUs only, so it is asked for."""


def prepare() -> None:
    """Has TensorFlow look for compiled programs in a folder of this process.

    To be called before devices are listed; idempotent.
    """
    global _process, _why_not, _is_users, _keeps_of_gpus
    if _process is not None or _why_not is not None:
        return
    flags = os.environ.get(_FLAGS, "").strip()
    chosen = os.environ.get(VARIABLE, "")
    _is_users = _DIRECTORY.rstrip("=") in flags
    if _is_users or chosen == "0":
        _why_not = ""
        return
    if sys.platform != "linux":
        _why_not = "it is kept on Linux only"
        return
    if flags and not flags.startswith("-") or _PROBE in flags:
        _why_not = f"{_FLAGS} is {flags!r}, to which no folder can be added"
        return
    folder = _new_folder()
    if folder is None:
        _why_not = (
            f"less than {_LEAST_FREE >> 20} MiB are free in /dev/shm and "
            f"{tempfile.gettempdir()}"
        )
        return
    _keeps_of_gpus = bool(chosen)
    types = "" if _keeps_of_gpus else _CPU_ONLY
    if not _are_read(f"{flags} {_DIRECTORY}{folder} {types}"):
        shutil.rmtree(folder)
        _why_not = (
            "TensorFlow has listed its devices before; make the strategy first"
        )
        return
    _process = _Process(folder)


def expect(
    functions: Collection[str],
    chosen: Chosen,
    on_gpus: bool,
) -> bool:
    """Gives TensorFlow what earlier starts have compiled of some functions.

    Args:
        functions: Names of functions that XLA will compile.
        chosen: The folder to keep them in, `False` for none, or `None` for
            that of `KERASMGPU_XLA_CACHE`, by default in the user's cache folder.
        on_gpus: Whether replicas run on GPUs.

    Returns:
        Boolean, whether what one device compiles will be loaded by others.
    """
    if not functions or _why_not == "":
        return _is_users and bool(functions)
    if on_gpus and not _keeps_of_gpus:
        return False
    if _process is None:
        logging.log_first_n(
            logging.INFO,
            "kerasmgpu: what XLA compiles is not kept for the next start: %s.",
            1,
            _why_not,
        )
        return False
    folder = folder_of(chosen)
    files = None
    try:
        if folder is not None:
            files = XlaFiles(folder, _key())
        return _process.expect(functions, files)
    except OSError as error:
        logging.log_first_n(
            logging.WARNING,
            "kerasmgpu: what XLA compiles is not kept for the next start: %s",
            1,
            error,
        )
        return _process.expect(functions, None)


def checked(chosen: Any) -> Chosen:
    """Returns the argument `xla_cache` of a strategy.

    Raises:
        InputError: If it is neither a path nor a boolean nor `None`.
    """
    if chosen is None or isinstance(chosen, bool):
        return chosen
    if isinstance(chosen, (str, os.PathLike)):
        path = os.fspath(chosen)
        if isinstance(path, str) and path:
            return path
    raise InputError(
        "xla_cache must be the path of a folder, False for none, or None for "
        f"the default. Received: xla_cache={chosen!r}"
    )


def folder_of(chosen: Chosen) -> pathlib.Path | None:
    """The folder that compiled programs are kept in, or `None`; see `expect`."""
    if chosen is None or chosen is True:
        chosen = os.environ.get(VARIABLE) or _default()
    if chosen is False or chosen == "0":
        return None
    return pathlib.Path(chosen).expanduser().absolute()


def _default() -> str:
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return os.path.join(caches, "kerasmgpu", "xla")


def _are_read(flags: str) -> bool:
    """Sets flags for TensorFlow, unless it has read them before.

    It reads them once. One that nothing uses yet tells whether it has.
    """
    before = os.environ.get(_FLAGS)
    os.environ[_FLAGS] = f"{flags} --{_PROBE}=true"
    try:
        are_read = bool(tf_session.TF_GetXlaConstantFoldingDisabled())
    finally:  # Processes that this one starts have folders of their own.
        del os.environ[_FLAGS]
        if before is not None:
            os.environ[_FLAGS] = before
    if are_read:
        tf_session.TF_SetXlaConstantFoldingDisabled(False)
    return are_read


def _new_folder() -> pathlib.Path | None:
    for parent in ("/dev/shm", tempfile.gettempdir()):
        with contextlib.suppress(OSError):
            _remove_abandoned(pathlib.Path(parent))
            if shutil.disk_usage(parent).free >= _LEAST_FREE:
                return pathlib.Path(tempfile.mkdtemp(prefix=_NAME, dir=parent))
    return None


def _locked(folder: pathlib.Path) -> int:
    """Locks a folder for as long as this process lives."""
    descriptor = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _remove_abandoned(parent: pathlib.Path) -> None:
    """Removes folders of processes of this user that were killed."""
    for lock in parent.glob(f"{_NAME}*/{_LOCK}"):
        try:
            descriptor = os.open(lock, os.O_RDWR)
        except OSError:  # Another user's, or just removed.
            continue
        with contextlib.suppress(OSError), os.fdopen(descriptor):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


def _key() -> str:
    """A name for programs of this version of TensorFlow on these devices."""
    parts = [
        tf.version.VERSION,
        tf.version.GIT_VERSION,
        tf.version.COMPILER_VERSION,
        os.environ.get(_FLAGS),
        *map(os.environ.get, _OF_NUMBERS),
        tf.config.experimental.tensor_float_32_execution_enabled(),
        configuration.is_op_determinism_enabled(),
        len(os.sched_getaffinity(0)),
        _processor(),
    ]
    for gpu in tf.config.get_visible_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        build = tf.sysconfig.get_build_info()
        parts.append(sorted(details.items()))
        parts.append([build.get("cuda_version"), build.get("cudnn_version")])
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _processor() -> list[str]:
    """The model and the features of the processor, as Linux tells them."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        first = file.read().split("\n\n", 1)[0].splitlines()
    return [
        line
        for line in first
        if line.startswith(("model", "flags", "Features", "CPU"))
    ]
