"""`default`: the callbacks of a long run in one list."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras

from kerasmgpu import atomic_files
from kerasmgpu.callbacks import evidence
from kerasmgpu.callbacks.audit import Audit
from kerasmgpu.callbacks.checkpoint import Checkpoint
from kerasmgpu.callbacks.device_stats import DeviceStats
from kerasmgpu.callbacks.hang_watch import HangWatch
from kerasmgpu.callbacks.monitors import Monitors
from kerasmgpu.callbacks.not_finite import NotFinite
from kerasmgpu.callbacks.progress import Progress
from kerasmgpu.callbacks.run_record import RunRecord
from kerasmgpu.callbacks.throughput import ThroughputLogger
from kerasmgpu.engine.devices import num_logical
from kerasmgpu.errors import (
    InputError,
    checked_arguments,
    shown,
)
from kerasmgpu.job import cluster
from kerasmgpu.job.cluster import is_first_worker
from kerasmgpu.stores.places import Place, checked_place
from kerasmgpu.stores.store_path import StorePath

Choice: TypeAlias = bool | Mapping[str, Any] | keras.callbacks.Callback
"""Whether to include a callback; or its arguments, or the callback itself."""


@checked_arguments
def default(
    run_dir: str | os.PathLike[str] | StorePath | None = None,
    *,
    extra: Sequence[keras.callbacks.Callback] = (),
    throughput: Choice = True,
    progress: Choice | None = None,
    record: Choice = True,
    devices: Choice = True,
    monitors: Choice = True,
    hang_watch: Choice = True,
    not_finite: Choice = True,
    audit: Choice | None = None,
    checkpoint: Choice = True,
) -> list[keras.callbacks.Callback]:
    """Returns the callbacks of a long run, in the order that they need.

    The run measures its speed, records what `kerasmgpu report` and TensorBoard
    show, says where a hang is and where a NaN comes from, and resumes after a
    kill when the same program is started again. Each callback has an argument:
    `False` leaves it out, `True` takes it with its defaults, a dictionary sets
    its arguments, and another callback replaces it.

    It prints one line, which says what the list has.

    In a job of several workers all of them pass the list. The first worker
    writes the record, the monitors and the checkpoints; each worker writes its
    devices and its hangs to a file of its own.

    Args:
        run_dir: String or path-like, folder of the run; created if missing. Or
            a URL of an object store, such as `"s3://bucket/runs/1"`: `monitors`
            and the file of `hang_watch` are left out, which need a local folder.
            Defaults to `None`: `devices`, `record`, `monitors` and
            `checkpoint` are left out, unless a dictionary gives their
            arguments.
        extra: Sequence of callbacks of your own. They come after
            `ThroughputLogger` and before `RunRecord`, which records the logs
            that they add.
        throughput: `ThroughputLogger`, which adds the speed to the logs.
            Defaults to `True`.
        progress: `Progress`, a line per epoch. Defaults to `None`: only where
            Keras prints nothing, with `fit(verbose=0)`.
        record: `RunRecord`, in `run_dir`. Defaults to `True`.
        devices: `DeviceStats`, in `run_dir/devices.jsonl`. Defaults to `True`.
        monitors: `Monitors`, in `run_dir/tensorboard`. Defaults to `True`.
        hang_watch: `HangWatch`; it also writes to `run_dir/hangs.txt`.
            Defaults to `True`.
        not_finite: `NotFinite`. Defaults to `True`.
        audit: `Audit`; it also writes `run_dir/evidence.json`. Defaults to
            `None`: only where TensorFlow sees several GPUs, or a job has several
            workers with one. There is nothing to prove of logical CPUs, which
            run a step on one device N times as slowly as on N GPUs.
        checkpoint: `Checkpoint`, in `run_dir/checkpoints`. Defaults to `True`.

    Returns:
        List of callbacks for `fit`.

    Raises:
        InputError: If a callback's argument here is of another type, or a
            dictionary has a key that is no argument of the callback, or lacks
            a folder that it needs.

    Example:

    ```python
    callbacks = kerasmgpu.callbacks.default(
        "runs/1", monitors=False, checkpoint={"every_seconds": 600}
    )
    model.fit(dataset, epochs=5, callbacks=callbacks)
    ```
    """
    folder = None
    if run_dir is not None:
        folder = checked_place(run_dir, "run_dir")
        atomic_files.require_folder(folder, "run_dir")
    if not isinstance(extra, Sequence) or not all(
        isinstance(one, keras.callbacks.Callback) for one in extra
    ):
        raise InputError(
            "extra must be a list of callbacks, such as [callback]. Received: "
            f"extra={shown(extra)}"
        )

    # TensorFlow's event files and the line of a hang are appended to.
    local = None if isinstance(folder, StorePath) else folder

    def within(
        argument: str, name: str, place: Place | None = folder
    ) -> dict[str, Any] | None:
        return None if place is None else {argument: place / name}

    if audit is None:
        audit = _several_gpus()
    hangs = within("path", "hangs.txt", local) or {}
    of_progress: dict[str, Any] = {}
    if progress is None:
        progress, of_progress = True, {"with_keras": False}
    made = [
        *_made("throughput", ThroughputLogger, throughput, {}),
        *extra,
        *_made("progress", Progress, progress, of_progress),
        *_made("hang_watch", HangWatch, hang_watch, hangs),
        *_made("not_finite", NotFinite, not_finite, {}),
        *_made("audit", Audit, audit, within("path", evidence.NAME) or {}),
        *_made(
            "devices", DeviceStats, devices, within("path", "devices.jsonl")
        ),
        *_made("record", RunRecord, record, within("folder", ".")),
        *_made(
            "monitors",
            Monitors,
            monitors,
            within("log_dir", "tensorboard", local),
        ),
        *_made(
            "checkpoint",
            Checkpoint,
            checkpoint,
            within("directory", "checkpoints"),
        ),
    ]
    if is_first_worker():
        print(_told(made, folder), flush=True)
    return made


def _several_gpus() -> bool:
    """Whether a strategy of this program may have several GPUs.

    It initialises no device.
    """
    least = 2 if cluster.from_environment() is None else 1
    return num_logical("GPU") >= least


def _told(
    made: Sequence[keras.callbacks.Callback], folder: Place | None
) -> str:
    """Returns a line on the callbacks of a list."""
    names = ", ".join(type(each).__name__ for each in made)
    place = "without a folder, so nothing is written"
    if folder is not None:
        place = f"files in {folder}"
        if any(isinstance(each, RunRecord) for each in made):
            place += f", shown by kerasmgpu report {folder}"
        if isinstance(folder, StorePath):
            place += (
                "; a hang is printed only, and Monitors need a local log_dir"
            )
    return f"callbacks: {names}; {place}"


def _made(
    name: str,
    kind: Callable[..., keras.callbacks.Callback],
    choice: Choice,
    given: dict[str, Any] | None,
) -> list[keras.callbacks.Callback]:
    """Returns a list of the chosen callback; empty if it is left out.

    Args:
        given: Dictionary of the callback's arguments, which `choice` may
            replace; `None` if there is no `run_dir` for its files, so that
            `True` leaves it out.
    """
    if isinstance(choice, keras.callbacks.Callback):
        return [choice]
    if isinstance(choice, bool):
        return [kind(**given)] if choice and given is not None else []
    if not isinstance(choice, Mapping):
        raise InputError(
            f"{name} must be True, False, a dictionary of {kind.__name__}'s "
            f"arguments, or a callback. Received: {name}={choice!r}"
        )
    arguments = {**(given or {}), **choice}
    known = inspect.signature(kind).parameters
    unknown = [argument for argument in choice if argument not in known]
    if unknown:
        raise InputError(
            f"{kind.__name__} has no argument {unknown[0]!r}. Expected some of "
            f"{', '.join(known)}. Received: {name}={dict(choice)!r}"
        )
    missing = [
        argument
        for argument, parameter in known.items()
        if parameter.default is parameter.empty and argument not in arguments
    ]
    if missing:
        raise InputError(
            f"{kind.__name__} needs a folder: pass run_dir, or {missing[0]!r} "
            f"in the dictionary. Received: {name}={dict(choice)!r}"
        )
    return [kind(**arguments)]
