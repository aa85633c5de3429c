"""Runs a function of a notebook in several workers."""

import pathlib
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kerasmgpu.errors import (
    InputError,
    checked_arguments,
)
from kerasmgpu.job.cluster import from_environment
from kerasmgpu.launch import function_call, settings
from kerasmgpu.launch.launcher import launch
from kerasmgpu.launch.member import Ending
from kerasmgpu.launch.output import Terminal

_SETTINGS = (
    "devices_per_worker",
    "max_restarts",
    "timeout_seconds",
    "grace_seconds",
    "exit_wait_seconds",
    "worker_log_dir",
)


class WorkerError(RuntimeError):
    """Raised when a job of `notebook_launch` fails.

    The message has the traceback of the worker that failed first; notebooks
    show only this message.

    Example:

    ```python
    try:
        kerasmgpu.notebook_launch(train, num_workers=2)
    except kerasmgpu.WorkerError as error:
        print(error)  # The traceback of `train` in the first that failed.
    ```
    """

    def _render_traceback_(self) -> list[str]:
        """Returns IPython's lines for the error, without this process's frames."""
        return [f"{type(self).__name__}: {self}"]


@checked_arguments
def notebook_launch(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    num_workers: int | None = None,
    **launch_settings: Any,
) -> list[Any]:
    """Runs a function in every worker of a job, and returns all results.

    For notebooks, which have no program for `python -m kerasmgpu.launch`; it
    works in scripts, too. Workers are new processes, so TensorFlow may already
    be initialised in this one; GPU memory that this process has allocated is
    not available to the workers. Everything that uses TensorFlow belongs inside
    the function, first of all `kerasmgpu.strategy()`.

    The workers' output appears below the cell as it arrives, with the worker's
    index. Interrupting the cell tells the workers to save and end; interrupting
    it again kills them.

    Args:
        function: Function to call in each worker; a cell may define it. Objects
            of the notebook that it uses (other functions, numbers, arrays) are
            copied to the workers.
        args: Sequence, its positional arguments. Default: none.
        num_workers: Integer, number of workers. Default: one for each GPU, and
            one on the CPU where there is no GPU.
        **launch_settings: As the launcher's flags (`python -m kerasmgpu.launch
            --help`): `devices_per_worker` (1), `max_restarts` (0),
            `timeout_seconds` (30), `grace_seconds` (30), `exit_wait_seconds`
            (60), `worker_log_dir` (`None`).

    Returns:
        List of the function's results, one element per worker.

    Raises:
        InputError: If a setting is invalid, there are not enough GPUs, or the
            function or an argument can't be pickled.
        WorkerError: If a worker failed; with its traceback.
        KeyboardInterrupt: If the cell was interrupted.

    Example:

    ```python
    def train(epochs):
        strategy = kerasmgpu.strategy()
        with strategy.scope():
            model = build_and_compile_model()
        return model.fit(x, y, batch_size=64, epochs=epochs).history

    histories = kerasmgpu.notebook_launch(train, (3,), num_workers=2)
    ```
    """
    _check(function, args, launch_settings)
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-") as name:
        folder = pathlib.Path(name)
        checked = settings.check(
            function_call.write(folder, function, tuple(args)),
            num_workers=num_workers,
            **launch_settings,
        )
        terminal = Terminal()
        if checked.note:
            terminal.say(checked.note)
        try:
            ending = launch(checked, terminal)
        finally:
            terminal.close()
        if ending.signal is not None:
            _pass_on(ending.signal)
        if ending.status != 0:
            raise _error(ending, folder) from None
        returned = function_call.results(folder, checked.num_workers)
    if returned is None:
        raise WorkerError("a worker ended before the function returned")
    return returned


def _check(function: Any, args: Any, launch_settings: dict[str, Any]) -> None:
    if not callable(function):
        raise InputError(
            "notebook_launch takes a function. Received: " + repr(function)
        )
    if not isinstance(args, (tuple, list)):
        raise InputError(
            "args is a tuple of the function's arguments, such as (3,). "
            f"Received: args={args!r}"
        )
    unknown = sorted(set(launch_settings) - set(_SETTINGS))
    if unknown:
        raise InputError(
            f"notebook_launch has no {unknown[0]!r}. Expected: "
            f"{', '.join(_SETTINGS)}; for more than one machine there is "
            "python -m kerasmgpu.launch"
        )
    if from_environment() is not None:
        raise InputError(
            "This process is a worker of a job already. Call the function "
            "itself, or start this program without the launcher"
        )
    if threading.current_thread() is not threading.main_thread():
        raise InputError(
            "notebook_launch must be called in the main thread, which is the "
            "one that an interrupt reaches"
        )


def _pass_on(number: int) -> None:
    """Raises, in this process, the signal that ended the job."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.raise_signal(number)


def _error(ending: Ending, folder: pathlib.Path) -> WorkerError:
    trace = function_call.failure(folder, ending.culprit)
    if trace is None:
        return WorkerError(ending.message)
    return WorkerError(
        f"worker {ending.culprit} failed first:\n\n{trace.rstrip()}"
    )
