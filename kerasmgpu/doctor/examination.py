"""Examines this machine, or all machines of a job: gathers, judges, reports."""

import collections
import dataclasses
import os
import pathlib
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kerasmgpu.commands import reports
from kerasmgpu.commands.child_processes import run_job
from kerasmgpu.doctor import tensorflow_checks
from kerasmgpu.doctor.collective_checks import judge_collectives
from kerasmgpu.doctor.findings import NOTE, OK, PROBLEM, Finding, found
from kerasmgpu.doctor.gpu_checks import gpu_facts, judge_gpus
from kerasmgpu.doctor.host_checks import host_facts, judge_host
from kerasmgpu.doctor.tensorflow_checks import judge_versions
from kerasmgpu.doctor.trials import JOB, TRIALS, judge_trials
from kerasmgpu.errors import InputError, checked_integer, checked_number
from kerasmgpu.hardware.cuda_devices import VARIABLE
from kerasmgpu.job import cluster

_CPU_MEGABYTES, _GPU_MEGABYTES = 16, 256
_LOGICAL_DEVICES = 2
_MOST_CLOCK_SECONDS = 1.0


def run(
    virtual_devices: int | None = None,
    data_dir: str | None = None,
    max_megabytes: int | None = None,
    train: bool = False,
    timeout_seconds: float = 120.0,
) -> dict[str, Any]:
    """Examines the machine; in a job, every worker calls this.

    Args:
        virtual_devices: Integer, logical CPU devices to use instead of GPUs, at
            most 256. Default: the GPUs; without any, 2, and 1 in a job.
        data_dir: String, folder to measure: free space, and speed by a file.
        max_megabytes: Integer, largest value of collectives, in MiB, at most
            16,384. Default: 256 on GPUs, 16 on CPUs.
        train: Boolean, whether to train small models on one device and on all.
        timeout_seconds: Float, seconds that each child process may take.

    Returns:
        Dictionary: `"verdict"`, `"problems"` (a number), `"findings"`,
        `"devices"`, `"collectives"`, `"engine"`, `"replicas"`, `"trials"`,
        `"facts"` of every worker and `"hosts"`, names that no text tells.

    Raises:
        InputError: If an argument is invalid.
    """
    worker = cluster.from_environment()
    _check(virtual_devices, data_dir, max_megabytes, timeout_seconds)
    if train and worker is not None:
        raise InputError(
            "--train is for one machine, without the launcher: it starts a job "
            "of two workers by itself"
        )
    is_first = worker is None or worker.is_first
    say = reports.say_if(is_first, sys.stderr)
    job = {
        "virtual_devices": virtual_devices,
        "timeout_seconds": timeout_seconds,
    }
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-doctor-") as name:
        folder = pathlib.Path(name)
        say("── this machine and TensorFlow …")
        facts = _facts(folder / "tensorflow", job, data_dir)
        on_cpus = bool(virtual_devices or not facts["tensorflow"].get("gpus"))
        if on_cpus and virtual_devices is None:
            job["virtual_devices"] = 1 if worker else _LOGICAL_DEVICES
        # GPUs are not touched when logical devices are asked for.
        environment = {"CUDA_VISIBLE_DEVICES": "-1"} if on_cpus else {}
        most = max_megabytes or (_CPU_MEGABYTES if on_cpus else _GPU_MEGABYTES)
        sizes = [4**power << 20 for power in range(12) if 4**power <= most]
        say(f"── collectives of 1 to {sizes[-1] >> 20} MiB …")
        measured = _child(
            "collective_checks",
            {**job, "sizes": sizes, "facts": facts},
            folder / "collectives",
            environment,
        )
        trials = _trials(folder, job, environment, say) if train else {}
    return _report(measured, facts, trials, on_cpus)


def _check(
    virtual_devices: int | None,
    data_dir: str | None,
    max_megabytes: int | None,
    timeout_seconds: float,
) -> None:
    if virtual_devices is not None:
        checked_integer(virtual_devices, "virtual_devices", 1, 256)
    if max_megabytes is not None:
        checked_integer(max_megabytes, "max_megabytes", 1, 16_384)
    checked_number(timeout_seconds, "timeout_seconds")
    if data_dir is not None and not os.path.isdir(data_dir):
        raise InputError(f"no such folder for --data_dir: {data_dir}")


def _facts(
    folder: pathlib.Path, job: dict[str, Any], data_dir: str | None
) -> dict[str, Any]:
    """Facts of this worker; `folder` is that of TensorFlow's process."""
    logged = {"TF_CPP_MIN_LOG_LEVEL": "0"}  # The log says why GPUs are missing.
    return {
        "versions": _gathered(tensorflow_checks.versions),
        "tensorflow": _child("tensorflow_checks", job, folder, logged),
        "log": tensorflow_checks.log_lines(folder),
        "driver": _gathered(gpu_facts),
        "host": _gathered(host_facts, data_dir),
        "host_name": socket.gethostname(),
    }


def _gathered(gather: Callable[..., Any], *arguments: Any) -> Any:
    """Facts, or `{"failed": the reason}`."""
    try:
        return gather(*arguments)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def _child(
    module: str, job: dict[str, Any], folder: pathlib.Path, environment: dict
) -> dict[str, Any]:
    """What a child process of ours returns, or `{"error": why it failed}`."""
    folder.mkdir()
    name = f"kerasmgpu.doctor.{module}"
    # A child of a worker joins the job.
    separate = cluster.SEPARATE_VARIABLE
    environment = {separate: os.environ.get(separate, "0"), **environment}
    try:
        return run_job(name, job, folder, job["timeout_seconds"], environment)
    except InputError as error:
        return {"error": str(error)}


def _trials(
    folder: pathlib.Path,
    job: dict[str, Any],
    environment: dict[str, str],
    say: Callable[[str], None],
) -> dict[str, Any]:
    trials = {}
    for number, name in enumerate((*TRIALS, JOB), 1):
        say(f"── training, {number} of {len(TRIALS) + 1}: {name} …")
        own = folder / f"trial-{number}"
        trials[name] = _child("trial", {**job, "trial": name}, own, environment)
    return trials


def _report(
    measured: dict[str, Any],
    own: dict[str, Any],
    trials: dict[str, Any],
    on_cpus: bool,
) -> dict[str, Any]:
    workers = measured.get("facts", [own])
    findings = list(_findings(measured, workers, trials))
    counts = collections.Counter(one.status for one in findings)
    devices = measured.get("devices") or own["tensorflow"].get("devices", [])
    return {
        "verdict": _verdict(counts, bool(trials)),
        "problems": counts[PROBLEM],
        "devices": _devices(devices, len(workers), on_cpus),
        "findings": [dataclasses.asdict(one) for one in findings],
        "replicas": measured.get("replicas", len(devices)),
        "engine": measured.get("engine", "nothing"),
        "collectives": measured.get("times", []),
        "trials": trials,
        "facts": workers,
        "hosts": sorted({one["host_name"] for one in workers}),
    }


def _findings(
    measured: dict[str, Any],
    workers: list[dict[str, Any]],
    trials: dict[str, Any],
) -> Iterator[Finding]:
    is_job = len(workers) > 1
    told = set()
    for number, facts in enumerate(workers):
        for one in _of_worker(facts, is_job):
            if not is_job:
                yield one
                continue
            # Workers of one machine find the same GPUs and limits.
            of_host = (facts["host_name"], one)
            if number == 0 or (one.status != OK and of_host not in told):
                subject = f"worker {number}: {one.subject}"
                yield dataclasses.replace(one, subject=subject)
            told.add(of_host)
    yield from judge_workers(workers, measured.get("clocks", []))
    driver = workers[0]["driver"]
    checked = judged(judge_collectives, "collectives", measured, driver, is_job)
    yield from checked
    yield from judge_trials(trials)


def _of_worker(facts: dict[str, Any], is_job: bool) -> Iterator[Finding]:
    tensorflow, host = facts["tensorflow"], facts["host"]
    environment = host.get("environment", {})
    if is_job and environment:  # The launcher's, which is as it should be.
        others = {k: v for k, v in environment.items() if k != VARIABLE}
        host = {**host, "environment": others}
    yield from judged(judge_versions, "versions", facts["versions"], tensorflow)
    yield from judged(
        judge_gpus,
        "GPUs",
        facts["driver"],
        tensorflow,
        environment,
        facts["log"],
        is_job,
    )
    yield from judged(judge_host, "host", host)


def judged(
    judge: Callable[..., Iterable[Finding]], subject: str, *facts: Any
) -> Iterator[Finding]:
    """Yields a judgement's findings; one that fails becomes a finding."""
    try:
        yield from judge(*facts)
    except Exception as error:
        dictionaries = [one for one in facts if isinstance(one, dict)]
        reasons = [one["failed"] for one in dictionaries if "failed" in one]
        reason = (*reasons, f"{type(error).__name__}: {error}")[0]
        text = f"this could not be checked: {reason}"
        yield found("check_failed", subject, text)


def judge_workers(
    workers: list[dict[str, Any]], clocks: list[float]
) -> Iterator[Finding]:
    """Judges differences between the workers of a job."""
    for package in ("python", "kerasmgpu", "tensorflow", "keras", "numpy"):
        found_by = [one["versions"].get(package, "none") for one in workers]
        if len(set(found_by)) > 1:
            text = f"{package} {', '.join(found_by)}, by worker"
            yield found("workers_differ", "workers", text)
    names = [_gpu_names(one["driver"]) for one in workers]
    if len(set(names)) > 1:
        text = f"GPUs by worker: {'; '.join(names)}"
        yield found("gpus_differ", "workers", text)
    seconds = max(clocks, default=0.0) - min(clocks, default=0.0)
    if seconds > _MOST_CLOCK_SECONDS:
        text = f"clocks differ by {seconds:.1f} s"
        yield found("clocks_differ", "workers", text)


def _gpu_names(driver: dict[str, Any]) -> str:
    names = collections.Counter(g.get("name") for g in driver.get("gpus", []))
    return ", ".join(f"{n} {name}" for name, n in names.items()) or "none"


def _devices(devices: list[str], num_workers: int, on_cpus: bool) -> str:
    names = ", ".join(name.rpartition("device:")[2] for name in devices)
    each = f" on each of {num_workers} workers" if num_workers > 1 else ""
    if not devices:
        return "No device is used: TensorFlow did not start."
    if not on_cpus:
        return f"GPUs: {names}{each}"
    return (
        f"No GPU is used: {names}{each} are logical CPU devices, "
        "which share the cores. They show that everything works, not how fast."
    )


def _verdict(counts: Mapping[str, int], has_trained: bool) -> str:
    if counts[PROBLEM]:
        return f"PROBLEMS: {counts[PROBLEM]}; notes: {counts[NOTE]}."
    more = "" if has_trained else " --train trains small models, too."
    return f"NO PROBLEM; notes: {counts[NOTE]}.{more}"
