"""Starts the processes of a check, and gathers what they say."""

import os
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

from kerasmgpu.check import check_report, stage_record
from kerasmgpu.commands import references, reports, user_errors
from kerasmgpu.commands.child_processes import ChildCrashed, run_job
from kerasmgpu.commands.command_line import LOADING
from kerasmgpu.errors import (
    checked_arguments,
    checked_integer,
    checked_number,
)
from kerasmgpu.job import cluster, job_token
from kerasmgpu.job.rendezvous import START_VARIABLE
from kerasmgpu.strategy_settings import settings_of_command

ONE_DEVICE = "one device"
_SECONDS_BEHIND_THE_FIRST = 3.0
"""How much later another worker ends: a launcher that sees its failure ends the
first one, which prints the table."""


@checked_arguments
def check(
    build: Callable[[], Any] | str,
    data: Callable[[], Any] | str | None = None,
    *,
    num_replicas: int | None = None,
    virtual_devices: int | None = None,
    shard: str | None = None,
    micro_batches: int = 1,
    steps: int = 2,
    global_batch_size: int | None = None,
    seed: int = 7,
    timeout_seconds: float = 600,
    show: bool = True,
) -> dict[str, Any]:
    """Runs everything of a long run once, on one device and on all.

    The model trains for some steps and writes a checkpoint; it evaluates,
    predicts, and is saved. A second process loads the file, compares the
    predictions, and resumes the training from the checkpoint. Each stage is
    timed, tracing and compilation included; one that fails is named with the
    line of the user's code. Plain Keras does all of this on the first device,
    and `kerasmgpu.strategy()` on all of them.

    It doesn't compare the devices' results: `kerasmgpu.verify` does. In a job
    of several workers all call it; the first one also runs on one device.

    Args:
        build: Function without arguments that returns a compiled
            `keras.Model`, or a pair `(model, data)`; or its name,
            `"my_module:build"` or `"path/to/file.py:build"`. Other processes
            call it, so it must be at the top level of a module.
        data: Function without arguments, or its name, that returns the data,
            as for `kerasmgpu.verify`. Default: the data that `build` returns,
            or the function `data` of its module.
        num_replicas: Integer, replicas. Default: all visible GPUs; without any,
            two logical CPU devices.
        virtual_devices: Integer, logical CPU devices to use as replicas.
        shard: String, what the replicas divide: `"optimizer"`, `"weights"` or
            `"embeddings"`. Default: `"none"`.
        micro_batches: Integer, parts in which a replica works through its
            rows. Defaults to 1.
        steps: Integer, steps of training, and batches of evaluation and
            prediction. Defaults to 2.
        global_batch_size: Integer, rows of a batch of arrays. Default: 26, or
            fewer where rows are few.
        seed: Integer, seed of the weights and of what training draws.
            Defaults to 7.
        timeout_seconds: Number, limit for each process, of which there are two
            per number of devices. Defaults to 600.
        show: Boolean, whether to print progress and the table. Defaults to
            `True`.

    Returns:
        Dictionary, as `--output` writes it: `"build"`; `"is_well"`, whether no
        stage failed; and `"runs"`, one for one device and one for all: `"on"`,
        `"replicas"`, `"workers"`, `"mesh"` of a `keras.distribution` (sizes by
        name) or `None`, `"losses"` of the epoch, `"file_bytes"` of the model,
        `"unsharded"`, why `shard` divides nothing or `None`, and `"stages"`
        with `"stage"`, `"seconds"` and `"error"`, which is `None` if it worked.

    Raises:
        InputError: If an argument is invalid.

    Example:

    ```python
    if __name__ == "__main__":
        report = kerasmgpu.check("my_module:build", virtual_devices=2)
        print(report["is_well"])
    ```
    """
    if global_batch_size is not None:
        checked_integer(global_batch_size, "global_batch_size", 1)
    for name, value in (
        ("num_replicas", num_replicas),
        ("virtual_devices", virtual_devices),
    ):
        if value is not None:
            checked_integer(value, name, 1)
    worker = cluster.from_environment()
    job = {
        **references.job(build, data, "check"),
        "strategy": {
            "num_replicas": num_replicas,
            "virtual_devices": virtual_devices,
            **settings_of_command(shard, micro_batches),
        },
        "workers": 1 if worker is None else worker.num_workers,
        "steps": checked_integer(steps, "steps", 1),
        "global_batch_size": global_batch_size,
        # NumPy's seeds have 32 bits.
        "seed": checked_integer(seed, "seed", 0, 2**32 - 1),
        "timeout_seconds": checked_number(timeout_seconds, "timeout_seconds"),
    }
    is_first = worker is None or worker.is_first
    say = reports.say_if(show and is_first)
    token = ""
    if worker is not None:
        # For each process; the first deletes the file.
        token = job_token.read()
        job_token.discard()
    say(f"checking {job['build']}: {LOADING}")
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-check-") as name:
        checks = _Checks(pathlib.Path(name), job, say, token)
        runs = [checks.run(ONE_DEVICE)] if is_first else []
        runs.append(checks.run("all devices"))
    errors = [s for run in runs for s in run["stages"] if s["error"]]
    result = {"build": job["build"], "is_well": not errors, "runs": runs}
    if show and is_first:
        check_report.print_table(result)
    elif errors and worker is not None:
        for stage in errors if show else ():
            print(f"worker {worker.index}: {stage['stage']}: {stage['error']}")
        time.sleep(_SECONDS_BEHIND_THE_FIRST)
    return result


class _Checks:
    """Runs the processes of a check, one after the other.

    Args:
        token: String, see `job_token.read`; empty outside of a job.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        job: dict[str, Any],
        say: Callable[[str], None],
        token: str,
    ) -> None:
        self._folder = folder
        self._job = job
        self._seconds = job["timeout_seconds"]
        self._say = say
        self._token = token

    def run(self, devices: str) -> dict[str, Any]:
        """Returns what the stages on one device, or on all, came to."""
        self._say(f"── {devices} …")
        files = self._folder / devices.replace(" ", "-")
        files.mkdir()
        on_one = devices == ONE_DEVICE
        job = {**self._job, "on_one_device": on_one, "files": str(files)}
        stages, facts = self._process(files / "train", job, resumes=False)
        if facts.get("unsharded"):
            self._say(f"   note: {facts['unsharded']}")
        if "losses" in facts:
            self._say("   a new process:")
            job["is_saved"] = "bytes" in facts
            later, _ = self._process(files / "resume", job, resumes=True)
            for stage in later:
                if stage["stage"] in ("load", "resume"):
                    stages.append(stage)
                elif stage["error"]:  # It never came to these.
                    stages.append({**stage, "stage": "resume"})
        return {
            "on": devices,
            "replicas": facts.get("replicas"),
            "workers": facts.get("workers"),
            "mesh": facts.get("mesh"),
            "losses": facts.get("losses"),
            "file_bytes": facts.get("bytes"),
            "unsharded": facts.get("unsharded"),
            "stages": stages,
        }

    def _process(
        self, folder: pathlib.Path, job: dict[str, Any], resumes: bool
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Runs a process; returns its stages, and its facts."""
        folder.mkdir()
        shown = 0

        def tell() -> None:
            nonlocal shown
            stages, _, _ = stage_record.read(folder)
            for stage in stages[shown:]:
                self._say(f"   {check_report.line(stage)}")
            shown = len(stages)

        job = {**job, "folder": str(folder), "resumes": resumes}
        environment, crash = self._environment(job), None
        try:
            run_job(
                "kerasmgpu.check.child",
                job,
                folder,
                self._seconds,
                environment,
                tell,
            )
        except ChildCrashed as error:
            crash = _reason(error, folder)
        finally:
            job_token.discard(environment)
        tell()
        stages, running, facts = stage_record.read(folder)
        if crash is not None:
            stage = running or "TensorFlow starts"
            stages.append({"stage": stage, "seconds": None, "error": crash})
            self._say(f"   {check_report.line(stages[-1])}")
        return stages, facts

    def _environment(self, job: dict[str, Any]) -> dict[str, str]:
        """Returns the environment variables of a process."""
        log_level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")
        environment = {"TF_CPP_MIN_LOG_LEVEL": log_level}
        if self._job["strategy"]["virtual_devices"]:
            environment["CUDA_VISIBLE_DEVICES"] = "-1"
        if job["on_one_device"]:
            return environment
        separate = os.environ.get(cluster.SEPARATE_VARIABLE, "0")
        environment[cluster.SEPARATE_VARIABLE] = separate
        # The first worker runs on one device before it meets the others.
        environment[START_VARIABLE] = f"{self._seconds:g}"
        if self._token:
            environment[job_token.FILE_VARIABLE] = job_token.write(self._token)
        return environment


def _reason(error: ChildCrashed, folder: pathlib.Path) -> str:
    """Returns why a process crashed, with the user's line where it was."""
    log = (folder / "log.txt").read_text("utf-8", errors="replace")
    # `faulthandler` lists the main thread last.
    main_thread = log.rpartition("(most recent call first)")[2]
    place = user_errors.place_in_stack(main_thread)
    place = place or user_errors.place_in_stack(log)
    if place is None:
        return str(error)
    what = str(error)
    if error.status is not None and error.status < 0:
        what = f"ended by signal {-error.status}"
    return f"{what} ({place})"
