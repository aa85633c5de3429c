"""Checks that a model trains the same on N replicas as on one device."""

import json
import math
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from kerasmgpu.commands import references, reports
from kerasmgpu.commands.child_processes import Start
from kerasmgpu.errors import (
    InputError,
    checked_arguments,
    checked_boolean,
    checked_counts,
    checked_integer,
    checked_number,
)
from kerasmgpu.strategy_settings import settings_of_command
from kerasmgpu.verify import parity_report
from kerasmgpu.verify.all_runs import compare_all
from kerasmgpu.verify.outcome import save_arrays
from kerasmgpu.verify.runs import Runs, copies


@checked_arguments
def verify(
    build: Callable[[], Any] | str,
    data: (
        Callable[[], Any] | str | np.ndarray | tuple[np.ndarray, ...] | None
    ) = None,
    replica_counts: Sequence[int] = (2, 4),
    *,
    steps: int = 5,
    global_batch_size: int | None = None,
    tolerance: float | None = None,
    float64: bool = False,
    shard: str | None = None,
    micro_batches: int = 1,
    seed: int = 7,
    timeout_seconds: float = 300,
    show: bool = True,
) -> dict[str, Any]:
    """Trains a model on one device and on replicas, and reports differences.

    Args:
        build: Function without arguments that returns a compiled
            `keras.Model`, or a pair `(model, data)`; or its name,
            `"my_module:build"` or `"path/to/file.py:build"`. It is called in
            the strategy's scope, in other processes, so it must be at the top
            level of a module.
        data: Function without arguments, or its name, that returns the data:
            arrays `x`, `(x, y)` or `(x, y, sample_weight)` (nests of NumPy
            arrays `[rows, …]`), or batches of them as a `tf.data.Dataset`, a
            `keras.utils.PyDataset` or a generator. Arrays may also be passed
            directly. Default: the data that `build` returns, or the function
            `data` of its module.
        replica_counts: Sequence of integers of at least 2, numbers of replicas
            to compare with one device; for a program that sets a
            `keras.distribution`, of the devices that `list_devices()` lists.
        steps: Integer, steps to train. Defaults to 5.
        global_batch_size: Integer, rows of a batch of arrays. Default: at most
            26, chosen for uneven shares.
        tolerance: Float, the largest weight difference that counts as parity,
            whatever the reason, in the program's precision; float64 isn't
            compared then. Default: 1e-5 for float32, 1e-12 for float64, unless
            rounding explains more.
        float64: Boolean, whether to train in float64 only. By default the
            program's own precision is compared, then float64, where rounding
            can't hide a fault. Defaults to `False`.
        shard: String, `"optimizer"`, `"weights"` or `"embeddings"`: what the
            replicas' strategy shards. Variables of any size are. Default:
            `"none"`.
        micro_batches: Integer, micro-batches of each replica. Defaults to 1.
        seed: Integer of at least 0, seed of Python, NumPy and Keras in each
            run. Defaults to 7.
        timeout_seconds: Number, time-out of each run in seconds. Defaults to
            300.
        show: Boolean, whether to print progress and the tables. Defaults to
            `True`.

    Returns:
        Dictionary, as `--output` writes it: `"in_parity"`, and `"runs"` with
        the verdict (`"equal"`, `"rounding"`, `"different"`), the distances, the
        first differing step and layer, the causes, and `"float64"`, the same in
        float64.

    Raises:
        InputError: If the model can't be trained on one device, or an
            argument is invalid.

    Example:

    ```python
    def build():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def data():
        random = np.random.default_rng(0)
        return random.normal(size=(100, 4)), random.normal(size=(100, 1))

    if __name__ == "__main__":
        report = kerasmgpu.verify(build, data, replica_counts=(2, 4))
        print(report["in_parity"])
    ```
    """
    counts = checked_counts(replica_counts, minimum=2)
    if global_batch_size is not None:
        checked_integer(global_batch_size, "global_batch_size", minimum=1)
    if tolerance is not None:
        tolerance = checked_number(tolerance, "tolerance")
    seconds = checked_number(timeout_seconds, "timeout_seconds")
    settings = {
        "steps": checked_integer(steps, "steps", minimum=1),
        "global_batch_size": global_batch_size,
        "float64": checked_boolean(float64, "float64"),
        "strategy": {
            "min_shard_bytes": 0,
            **settings_of_command(shard, micro_batches),
        },
        # NumPy's seeds have 32 bits.
        "seed": checked_integer(seed, "seed", 0, 2**32 - 1),
    }
    if isinstance(data, np.ndarray):
        data = (data,)
    arrays, function = None, cast(Any, data)
    if isinstance(data, tuple):
        arrays, function = data, None
    functions = references.job(build, function, "verify")
    with copies() as start:
        result = compared(
            functions, settings, counts, start, arrays, tolerance, seconds, show
        )
    if show:
        parity_report.print_tables(result)
    return result


def compared(
    functions: dict[str, Any],
    settings: dict[str, Any],
    counts: Sequence[int],
    start: Start,
    arrays: tuple[np.ndarray, ...] | None = None,
    tolerance: float | None = None,
    seconds: float = 300,
    show: bool = True,
) -> dict[str, Any]:
    """Trains on one device and on replicas, and compares; prints no tables.

    Args:
        functions: Names of the functions; see `references.job`.
        settings: Dictionary of a run's `"steps"`, `"global_batch_size"`,
            `"float64"`, `"seed"`, and `"strategy"`, arguments of
            `kerasmgpu.strategy`; with `"runs_as_gpus"` replicas run the program
            that GPUs would get.
        start: Function that starts a run; see `runs.copies`.
        arrays: The data, or `None`: those of `functions`.

    Returns:
        Dictionary, see `verify`.
    """
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-verify-") as name:
        folder = pathlib.Path(name)
        job = {**functions, **settings, "data_file": None}
        if arrays is not None:
            job["data_file"] = _saved(arrays, folder / "data.npz")
        say = reports.say_if(show)
        runs = Runs(folder, job, seconds, say, start)
        return compare_all(runs, counts, tolerance, say)


def _saved(arrays: tuple[Any, ...], path: pathlib.Path) -> str:
    if not all(isinstance(array, np.ndarray) for array in arrays):
        raise InputError(
            "data must be a tuple of NumPy arrays, or a function that returns "
            "the data, because other processes use them. Received: data of "
            f"{', '.join(type(item).__name__ for item in arrays) or 'nothing'}"
        )
    save_arrays(path, arrays)
    return str(path)


def to_json(result: dict[str, Any]) -> str:
    """Returns the report as JSON; NaN and infinity become strings."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return value

    return json.dumps(plain(result), indent=2) + "\n"
