"""Runs each step of the user's model once, so that XLA compiles it."""

import contextlib
import functools
import pathlib
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu
from kerasmgpu.commands import batches, references, search_path, user_models
from kerasmgpu.commands.traced_step import DEFAULT_ROWS
from kerasmgpu.engine import xla_cache, xla_files, xla_filled_folders
from kerasmgpu.engine.devices import leave_room
from kerasmgpu.engine.xla_versions import digest, versions
from kerasmgpu.errors import InputError
from kerasmgpu.job import workers
from kerasmgpu.strategies.layouts import mesh_of


class _ReadsLogs(keras.callbacks.Callback):
    """Makes a step return its logs, as the progress bar of `fit` does."""

    reads_batch_logs = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reads nothing."""

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reads nothing."""


def compile_steps(job: dict[str, Any]) -> dict[str, Any]:
    """Compiles the steps of a job in this process, or worker; see `filling.fill`.

    Raises:
        InputError: If the model is compiled without XLA, or nothing can be
            kept.
    """
    search_path.enter(job["search_path"])
    folder = pathlib.Path(job["folder"])
    xla_cache.prepare()  # Before devices are listed.
    if job["workers"] == 1:
        leave_room()
    on_gpus = bool(tf.config.list_physical_devices("GPU"))
    devices = "num_replicas" if on_gpus else "virtual_devices"
    strategy = kerasmgpu.strategy(
        **{devices: job["replicas"]},
        **job["strategy"],
    )
    found = versions(on_gpus)
    compiled = xla_cache.keep_now()  # None; raises if none can be.
    # Of these versions there are programs from now on.
    with _naming(folder):
        xla_files.XlaFiles(folder, found)
    with user_models.scope(strategy, job["build"], "--replicas"):
        model, data = user_models.model_and_data(
            references.load(job["build"]), job["build"], job["data"]
        )
    strategy = user_models.strategy_of(model, strategy)
    _require_xla(model)
    rows = []
    for size, arguments in _batches(data, job["global_batch_sizes"]):
        for step in job["steps"]:
            start = time.perf_counter()
            _run(model, step, arguments)
            seconds = time.perf_counter() - start
            before = compiled
            with _naming(folder):
                compiled = xla_cache.keep_now()
            rows.append(
                {
                    "replicas": strategy.num_replicas_in_sync,
                    "workers": job["workers"],
                    "mesh": mesh_of(strategy.distribution),
                    "step": step,
                    "global_batch_size": size,
                    "compiled": compiled - before,
                    "seconds": seconds,
                }
            )
    if workers.is_first(strategy):
        xla_filled_folders.add_command(folder, _command(job, rows))
    workers.gather(strategy, [0])  # All have kept what they compiled.
    sizes = xla_files.sizes(folder / digest(found))
    return {
        "rows": rows,
        "versions": found,
        "programs": len(sizes),
        "bytes": sum(sizes),
    }


@contextlib.contextmanager
def _naming(folder: pathlib.Path) -> Iterator[None]:
    """Context that names the folder in an error of the file system."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"--output={folder} can't keep compiled programs: {error}"
        ) from error


def _require_xla(model: keras.Model) -> None:
    if model.run_eagerly:
        raise InputError(
            "the model was compiled with run_eagerly=True, and eager steps are "
            "not compiled; compile it with jit_compile=True"
        )
    if not model.jit_compile:
        raise InputError(
            "XLA is off in this model. Compile it with jit_compile=True: the "
            'default, "auto", compiles while a model trains, and not ahead'
        )


def _batches(
    data: Any, sizes: list[int] | None
) -> Iterator[tuple[int, Callable[[], dict[str, Any]]]]:
    """Yields the rows of a batch, and a function for one step's data.

    The function returns arguments of `fit`.

    Args:
        data: Arrays or batches, as for `kerasmgpu.verify`.
        sizes: List of integers, rows of batches of arrays; or `None`.
    """
    if not isinstance(data, (np.ndarray, tf.Tensor, dict, tuple)):
        first = batches.first_batches(data, 1, sizes[0] if sizes else None)
        (batch,) = first.take(1)
        is_read = isinstance(data, types.GeneratorType)
        yield (
            batches.num_rows(batch),
            # A generator is read once only; each step gets one of its own.
            lambda: {"x": _always(batch) if is_read else data},
        )
        return
    data = batches.as_nest(data)
    for size in sizes or [DEFAULT_ROWS]:
        cut = tf.nest.map_structure(_first_rows(size), data)
        x, y, weight = keras.utils.unpack_x_y_sample_weight(cut)
        arguments = {"x": x, "y": y, "sample_weight": weight}
        arguments["batch_size"] = size
        yield size, functools.partial(dict, arguments)


def _always(batch: Any) -> Iterator[Any]:
    while True:
        yield batch


def _first_rows(number: int) -> Callable[[Any], Any]:
    """Returns a function that takes rows of an array, again where it has few."""
    return lambda one: (
        None if one is None else np.resize(one, (number, *np.shape(one)[1:]))
    )


def _run(
    model: keras.Model, step: str, arguments: Callable[[], dict[str, Any]]
) -> None:
    """Runs a step on one batch: with logs, for a progress bar, and without."""
    steps = model.steps_per_execution
    if step == "predict":
        data = arguments()
        settings = {n: data[n] for n in data.keys() & {"x", "batch_size"}}
        model.predict(**settings, steps=steps, verbose=0)
        return
    for callbacks in ([], [_ReadsLogs()]):
        settings = {**arguments(), "callbacks": callbacks, "verbose": 0}
        if step == "train":
            model.fit(**settings, steps_per_epoch=steps)
        else:
            model.evaluate(**settings, steps=steps)


def _command(job: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The arguments by which the folder was filled, for messages."""
    total = job["replicas"] * job["workers"]
    sizes = dict.fromkeys(str(row["global_batch_size"]) for row in rows)
    words = [
        job["build"],
        f"--replicas={total}",
        f"--global_batch_size={','.join(sizes)}",
        f"--steps={','.join(job['steps'])}",
    ]
    if job["workers"] > 1:
        words.append(f"--replicas_per_worker={job['replicas']}")
    words += [f"--{name}={value}" for name, value in job["strategy"].items()]
    return " ".join(words)
