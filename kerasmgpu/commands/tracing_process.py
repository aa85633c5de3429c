"""Commands that trace the user's model in a child process, and run nothing.

No parent imports TensorFlow: flags are checked at once.
"""

import os
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from absl import flags

from kerasmgpu.commands import child_processes, references
from kerasmgpu.commands.command_line import LOADING
from kerasmgpu.errors import InputError, checked_integer, checked_number


def define_flags(flag_values: flags.FlagValues, timeout_seconds: float) -> None:
    """Defines `--data`, `--global_batch_size`, `--json` and `--timeout_seconds`.

    Args:
        flag_values: The `absl.flags.FlagValues` to define them in.
        timeout_seconds: Default of the flag.
    """
    flags.DEFINE_string(
        "data",
        None,
        "MODULE:FUNCTION or FILE.py:FUNCTION that returns arrays (x, y), or "
        "batches as tf.data.Dataset or PyDataset.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "global_batch_size",
        None,
        "Rows of all replicas. Default: those of the first batch; 32 of arrays.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_boolean(
        "json",
        False,
        "Prints the report as JSON instead of the table.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "timeout_seconds",
        timeout_seconds,
        "How long building and tracing the model may take, in seconds.",
        flag_values=flag_values,
    )
    # Flags may follow the function's name.
    flag_values.set_gnu_getopt(True)


def function_in(argv: list[str]) -> str:
    """Returns the one argument of a command, the user's function.

    Raises:
        InputError: If there are none or several.
    """
    if len(argv) != 2:
        raise InputError(
            "give one function that returns your compiled model, such as "
            f"my_module:build. Received: {' '.join(argv[1:]) or 'none'}"
        )
    return argv[1]


def run(
    child: str,
    build: Callable[[], Any] | str,
    data: Callable[[], Any] | str | None,
    *,
    global_batch_size: int | None,
    timeout_seconds: float,
    show: bool,
    **settings: Any,
) -> dict[str, Any]:
    """Runs a module's `main(job)` in a child process without GPUs.

    Args:
        child: String, the module, whose `__main__` calls `child_processes.do_job`.
        build: Function that returns a compiled model, or its name; see
            `kerasmgpu.memory.memory`.
        data: Function that returns the data, its name, or `None`.
        global_batch_size: Integer, rows of a batch, or `None`.
        timeout_seconds: Number, how long it may take.
        show: Whether to say what is traced, on standard error.
        **settings: More entries of the job.

    Returns:
        Dictionary, what `main` returns, with `"build"`, the function's name.

    Raises:
        InputError: If an argument is invalid, or the model can't be traced.
    """
    if global_batch_size is not None:
        checked_integer(global_batch_size, "global_batch_size", 1)
    job = {
        "build": references.reference(build, "build"),
        "data": None if data is None else references.reference(data, "data"),
        "global_batch_size": global_batch_size,
        "sys_path": [os.path.abspath(path) for path in sys.path],
        **settings,
    }
    seconds = checked_number(timeout_seconds, "timeout_seconds")
    if show:
        print(f"tracing {job['build']}: {LOADING}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-trace-") as folder:
        made = child_processes.run_job(
            child,
            job,
            pathlib.Path(folder),
            seconds,
            {"CUDA_VISIBLE_DEVICES": "-1"},
        )
    return {**made, "build": job["build"]}
