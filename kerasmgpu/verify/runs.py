"""Starts the runs of a model, each in a process of its own."""

import contextlib
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

from kerasmgpu.commands.child_processes import ChildCrashed, Start, run_job
from kerasmgpu.commands.forked_processes import copies_with
from kerasmgpu.errors import InputError
from kerasmgpu.verify import child
from kerasmgpu.verify.outcome import Outcome


class Runs:
    """Runs of one job, each in a separate process and folder."""

    def __init__(
        self,
        folder: pathlib.Path,
        job: dict[str, Any],
        seconds: float,
        say: Callable[[str], None],
        start: Start,
    ) -> None:
        self.folder = folder
        self.start = start
        self.job = {
            "start": None,
            "devices": 1,
            "sets_distribution": False,
            **job,
        }
        self.seconds = seconds
        self.say = say
        self.count = 0

    def outcome(
        self,
        name: str,
        num_replicas: int | None = None,
        nudge: tuple[float, int] | None = None,
        float64: bool | None = None,
    ) -> Outcome:
        """Runs the job; returns its `Outcome`.

        Args:
            nudge: Relative size, and seed, of random changes of the initial
                weights.
            float64: Whether Keras's float type is float64. Default: that of the
                job.

        Raises:
            InputError: If the run fails, with the reason in one line.
        """
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        job = {
            **self.job,
            "num_replicas": num_replicas,
            "nudge": nudge,
            "float64": self.job["float64"] if float64 is None else float64,
            "folder": str(folder),
        }
        self.say(f"── {name} …")
        begin = time.monotonic()
        try:
            facts = run_job(
                "kerasmgpu.verify.child",
                job,
                folder,
                self.seconds,
                start=self.start,
            )
        except ChildCrashed as error:
            raise InputError(_reason(folder, error)) from None
        self.say(f"   {time.monotonic() - begin:.1f} s")
        return Outcome(folder, facts)


def copies() -> contextlib.AbstractContextManager[Start]:
    """Context with what starts runs, without GPUs; see `copies_with`."""
    environment = {
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
    }
    modules = ["kerasmgpu.verify.training", "kerasmgpu.commands.traced_step"]
    return copies_with(modules, environment)


def _reason(folder: pathlib.Path, error: ChildCrashed) -> str:
    """Returns why a run crashed, and in which phase."""
    phase = child.read_phase(folder)
    if error.status is not None and error.status > 0:
        return f"{phase} ended with exit status {error.status}: {error}"
    return f"{phase} {error}"
