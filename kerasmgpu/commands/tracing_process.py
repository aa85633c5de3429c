"""Commands that trace the user's model in a child process, and run nothing.

No parent imports TensorFlow: flags are checked at once.
"""

import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from kerasmgpu.commands import child_processes, references
from kerasmgpu.commands.command_line import say_loading
from kerasmgpu.errors import checked_integer, checked_number

_PROGRESS = "progress.txt"


def tell(job: dict[str, Any], line: str) -> None:
    """Has the parent of a job's process print a line, if it shows progress."""
    if "folder" in job:
        path = pathlib.Path(job["folder"]) / _PROGRESS
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def run(
    child: str,
    caller: str,
    build: Callable[[], Any] | str,
    data: Callable[[], Any] | str | None,
    *,
    global_batch_size: int | None,
    timeout_seconds: float,
    show: bool,
    start: child_processes.Start | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Runs a module's `main(job)` in a child process without GPUs.

    Args:
        child: String, the module, whose `__main__` calls `child_processes.do_job`.
        caller: String, name of the function of kerasmgpu that calls this.
        build: Function that returns a compiled model, or its name; see
            `kerasmgpu.memory.memory`.
        show: Whether to say what is traced, and what the child `tell`s, on
            standard error.
        start: Function that starts the child; see `child_processes.run_job`.
        **settings: More entries of the job.

    Returns:
        Dictionary, what `main` returns, with `"build"`, the function's name.

    Raises:
        InputError: If an argument is invalid, or the model can't be traced.
    """
    if global_batch_size is not None:
        checked_integer(global_batch_size, "global_batch_size", 1)
    job = {
        **references.job(build, data, caller),
        "global_batch_size": global_batch_size,
        **settings,
    }
    seconds = checked_number(timeout_seconds, "timeout_seconds")
    if show:
        say_loading(f"tracing {job['build']}")
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-trace-") as name:
        folder, shown = pathlib.Path(name), 0
        if show:
            job["folder"] = name

        def print_progress() -> None:
            nonlocal shown
            if (folder / _PROGRESS).exists():
                text = (folder / _PROGRESS).read_text("utf-8")
                whole = text[shown : text.rfind("\n") + 1]
                print(whole, end="", file=sys.stderr, flush=True)
                shown += len(whole)

        made = child_processes.run_job(
            child,
            job,
            folder,
            seconds,
            {"CUDA_VISIBLE_DEVICES": "-1"},
            print_progress,
            start,
        )
        print_progress()  # What it has told last.
    return {**made, "build": job["build"]}
