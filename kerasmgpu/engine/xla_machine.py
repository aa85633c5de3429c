"""The first worker of a machine compiles, and the others load its programs.

Workers start together, so all would miss the same programs at the same time. In
the first run of a step each cluster of another worker waits until the first one
has written its program, which it links into its own folder. Nothing waits for
ever: not for a worker that has ended, nor for one that writes none for long.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from kerasmgpu.engine.xla_files import function_in, require_private
from kerasmgpu.engine.xla_process import LOCK, XlaProcess
from kerasmgpu.partitioner.lowering import xla_first_run

MOST_SECONDS = 300.0
"""Without a new program of the first worker, until the others compile too. A
cluster of a large model takes a minute or two where cores are few."""

_POLL_SECONDS = 0.1


class Compiler(NamedTuple):
    """A worker that compiles a function.

    Attributes:
        folder: String, the folder of its process; empty without one.
        key: String, digest of the versions that its programs depend on.
        levels: Dictionary from the functions that it compiles to the level of
            the first cluster of each.
    """

    folder: str
    key: str
    levels: dict[str, int]


def exchange(
    own: Compiler, gather: Callable[[Sequence[float]], np.ndarray]
) -> list[Compiler]:
    """Returns the `Compiler`s of all workers; collective.

    Args:
        gather: Function that all-gathers numbers; see `job.workers.gather`.
    """
    text = json.dumps(own).encode()
    longest = int(gather([len(text)]).max())
    table = gather([*text.ljust(longest)])
    return [Compiler(*json.loads(bytes(row.astype(np.uint8)))) for row in table]


def awaited(own: Compiler, all_workers: Sequence[Compiler]) -> Compiler | None:
    """Returns who compiles for a worker, with the functions that it waits for.

    These are the ones that both compile, and the first worker not at a higher
    level: it may reach that one only behind a sum of what waits.

    Args:
        all_workers: Those of all workers, in their order.

    Returns:
        `Compiler` of an earlier worker on this machine; `None` without one.
    """
    for one in all_workers:
        if not own.folder or one.folder == own.folder:
            return None
        if one.key == own.key and _is_here(pathlib.Path(one.folder)):
            levels = {
                function: level
                for function, level in own.levels.items()
                if one.levels.get(function, level + 1) <= level
            }
            return one._replace(levels=levels) if levels else None
    return None


class Awaited:
    """Functions that the first worker of this machine compiles.

    Args:
        process: `XlaProcess` of this process, which gets the programs.
        host: Name of the device of queues.
        seconds: Number, longest wait for another program. Defaults to
            `MOST_SECONDS`.

    Attributes:
        queues: Dictionary from each function to the name of its queue
            (`lowering/xla_first_run.py`).
    """

    def __init__(
        self,
        compiler: Compiler,
        process: XlaProcess,
        host: str,
        seconds: float = MOST_SECONDS,
    ) -> None:
        self.queues = {
            function: xla_first_run.queue_name(function)
            for function in compiler.levels
        }
        self._folder = pathlib.Path(compiler.folder)
        self._process, self._host, self._seconds = process, host, seconds
        self._seen: set[str] = set()
        self._left = dict(self.queues)
        threading.Thread(
            target=self._watch, name="kerasmgpu XLA of a machine", daemon=True
        ).start()

    def _watch(self) -> None:
        reason = None
        try:
            latest = time.monotonic()
            while self._left and reason is None:
                if not is_alive(self._folder):
                    reason = "it has ended"
                if self._take_new():
                    latest = time.monotonic()
                elif time.monotonic() - latest > self._seconds:
                    reason = f"it has written none for {self._seconds:.0f} s"
                time.sleep(_POLL_SECONDS)
        except OSError as error:
            reason = str(error)
        if self._left:
            logging.warning(
                "kerasmgpu: this worker compiles %d clusters with XLA itself, "
                "which the first worker of this machine was to compile: %s.",
                len(self._left),
                reason,
            )
        for function in list(self._left):
            self._release(function)

    def _take_new(self) -> bool:
        """Links programs that were written since the last call, if any."""
        found = False
        for file in self._folder.glob("*.pb"):
            if file.name in self._seen:
                continue
            self._seen.add(file.name)
            with contextlib.suppress(FileNotFoundError):  # Removed meanwhile.
                function = function_in(file)
                if function in self._left:
                    self._process.take(file, function)
                    self._release(function)
                found = True
        return found

    def _release(self, function: str) -> None:
        xla_first_run.release(self._left.pop(function), self._host)


def is_alive(folder: pathlib.Path) -> bool:
    """Whether the process of a folder lives."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    with os.fdopen(descriptor):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _is_here(folder: pathlib.Path) -> bool:
    """Whether a folder of another worker is on this machine, and private."""
    try:
        require_private(folder)
    except OSError:
        return False
    return is_alive(folder)
