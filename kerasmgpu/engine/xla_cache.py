"""Keeps what XLA compiles, so that a second start compiles nothing.

TensorFlow writes a compiled program to the folder of a flag, and looks there
before it compiles. An error there ends the step: a full disk, or a damaged file.
So its folder is a private one of this process, in memory where there is some;
what is kept is linked there, checked, and copied from there behind the steps.

Checked on TensorFlow 2.18 and 2.21, which read flags when devices are first
listed.
"""

import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from kerasmgpu.engine import xla_filled_folders, xla_machine, xla_process
from kerasmgpu.engine.private_names import tf_session
from kerasmgpu.engine.xla_files import XlaFiles
from kerasmgpu.engine.xla_process import XlaProcess
from kerasmgpu.engine.xla_versions import digest, versions
from kerasmgpu.errors import InputError, checked_path
from kerasmgpu.strategy_settings import XlaCache

VARIABLE = "KERASMGPU_XLA_CACHE"
"""Environment variable: the folder, or `0` for none, not even in this process."""

_FLAGS = "TF_XLA_FLAGS"
_DIRECTORY = "--tf_xla_persistent_cache_directory="
_CPU_ONLY = "--tf_xla_persistent_cache_device_types=CPU"
_PROBE = "tf_xla_disable_constant_folding"

_process: XlaProcess | None = None
_why_not: str | None = None
"""Why TensorFlow keeps nothing for us; empty where the user said so."""

_is_users = False
"""Whether TensorFlow has a folder that the user has set."""

_keeps_of_gpus = False
"""Whether programs of GPUs are kept. Where TensorFlow can't write one, the step
ends with an error; that it can has been seen on CPUs only, so it is asked for."""


def prepare() -> None:
    """Has TensorFlow look for compiled programs in a folder of this process.

    To be called before devices are listed, as `_tensorflow_hook.py` does;
    idempotent.
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
    _keeps_of_gpus = bool(chosen)
    if sys.platform != "linux":
        _why_not = f"it is kept on Linux only; {VARIABLE}=0 hides this line"
        return
    if flags and not flags.startswith("-") or _PROBE in flags:
        _why_not = (
            f"{_FLAGS} is {flags!r}, to which no folder can be added; list its "
            f"flags there, without {_PROBE}"
        )
        return
    folder = xla_process.new_folder()
    if folder is None:
        _why_not = (
            f"less than {xla_process.LEAST_FREE >> 20} MiB are free in /dev/shm and "
            f"{tempfile.gettempdir()}; remove files there"
        )
        return
    types = "" if _keeps_of_gpus else _CPU_ONLY
    if not _are_read(f"{flags} {_DIRECTORY}{folder} {types}"):
        shutil.rmtree(folder)
        _why_not = (
            "TensorFlow had listed its devices before; import kerasmgpu before "
            "that, and list them with tf.config"
        )
        return
    _process = XlaProcess(folder)


class Together(NamedTuple):
    """Workers that write one function at the same time.

    Attributes:
        levels: Mapping from functions that this worker will compile to the
            lowest level of their clusters.
        gather: Function that all-gathers numbers; see `job.workers.gather`.
        host: Name of this worker's host device.
    """

    levels: Mapping[str, int]
    gather: Callable[[Sequence[float]], np.ndarray]
    host: str


def expect(
    functions: Collection[str],
    chosen: XlaCache,
    on_gpus: bool,
    together: Together | None = None,
) -> Mapping[str, str] | None:
    """Gives TensorFlow what earlier starts have compiled of some functions.

    Args:
        functions: Names of functions that XLA will compile.
        chosen: The folder to keep them in, `False` for none, or `None` for
            that of `KERASMGPU_XLA_CACHE`, by default in the user's cache folder.
        on_gpus: Whether replicas run on GPUs.
        together: `Together`, if all workers of a job call this function now;
            it is a collective then.

    Returns:
        `None` unless what one device compiles will be loaded by others; else
        the functions that another worker of this machine compiles, each with the
        name of the queue that says when it has.

    Raises:
        InputError: If `kerasmgpu compile` has filled the folder, and nothing
            there is for this version of TensorFlow on these devices.
    """
    try:
        others_load = _expect(functions, chosen, on_gpus)
    except InputError:
        _compiler(on_gpus, together)  # The others wait for it.
        raise
    compiler = _compiler(on_gpus, together)
    if compiler is not None and _process is not None:
        left = compiler.levels.keys() - _process.done
        compiler = compiler._replace(levels=dict.fromkeys(left, 0))
        if left:
            host = together.host if together else ""
            return xla_machine.Awaited(compiler, _process, host).queues
    return {} if others_load else None


def _compiler(
    on_gpus: bool, together: Together | None
) -> xla_machine.Compiler | None:
    """Returns who compiles for this worker, if another one does; collective."""
    if together is None:
        return None
    folder = ""
    if _process is not None and (_keeps_of_gpus or not on_gpus):
        folder = str(_process.folder)
    own = xla_machine.Compiler(
        folder, digest(versions(on_gpus)), dict(together.levels)
    )
    return xla_machine.awaited(own, xla_machine.exchange(own, together.gather))


def _expect(
    functions: Collection[str], chosen: XlaCache, on_gpus: bool
) -> bool:
    """Whether what one device compiles will be loaded by others."""
    if not functions or _why_not == "":
        return _is_users and bool(functions)
    if on_gpus and not _keeps_of_gpus:
        return False
    if _process is None:
        logging.log_first_n(
            logging.WARNING,
            "kerasmgpu: what XLA compiles is not kept for the next start: %s.",
            1,
            _why_not,
        )
        return False
    folder, files, ahead = folder_of(chosen), None, None
    try:
        if folder is not None:
            found = versions(on_gpus)
            if _is_told(chosen):
                ahead = xla_filled_folders.commands_of(folder)
                xla_filled_folders.look_into(folder, found)
            files = XlaFiles(folder, found)
        return _process.expect(functions, files, ahead)
    except OSError as error:
        logging.log_first_n(
            logging.WARNING,
            "kerasmgpu: what XLA compiles is not kept for the next start: %s",
            1,
            error,
        )
        return _process.expect(functions, None, ahead)


def keep_now() -> int:
    """Keeps what TensorFlow has compiled for us so far.

    Returns:
        Number of programs that this process has compiled.

    Raises:
        InputError: If TensorFlow keeps nothing for us.
        OSError: If a program could not be kept.
    """
    if _process is None:
        reason = _why_not or (
            f"{_FLAGS} has a folder of its own"
            if _is_users
            else f"{VARIABLE} is 0"
        )
        raise InputError(f"what XLA compiles is not kept: {reason}")
    return _process.keep_now()


def folder_of(chosen: XlaCache) -> pathlib.Path | None:
    """The folder that compiled programs are kept in, or `None`; see `expect`."""
    if chosen is None or chosen is True:
        chosen = os.environ.get(VARIABLE) or _default()
        chosen = checked_path(chosen, VARIABLE)
    if chosen is False or chosen == "0":
        return None
    return pathlib.Path(chosen).expanduser().absolute()


def _is_told(chosen: XlaCache) -> bool:
    """Whether the user has named a folder, which is not the default one."""
    if isinstance(chosen, (str, os.PathLike)):
        return True
    return bool(os.environ.get(VARIABLE))


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
