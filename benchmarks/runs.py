"""Runs the rounds of a benchmark: contenders in turn, in separate processes."""

import json
import os
import tempfile
import textwrap
import time
from collections.abc import Sequence

from benchmarks import figures, machine, tables
from benchmarks.contenders import BY_DEFAULT, CONTENDERS, left_out
from benchmarks.figures import SECOND_START
from benchmarks.workloads import WORKLOADS
from kerasmgpu.atomic_files import write_text
from kerasmgpu.commands import child_processes, reports
from kerasmgpu.errors import (
    InputError,
    checked_counts,
    checked_integer,
    checked_number,
)


def run(
    workloads: Sequence[str] = tuple(WORKLOADS),
    contenders: Sequence[str] = BY_DEFAULT,
    replica_counts: Sequence[int] = (1, 2, 4, 8),
    rounds: int = 3,
    steps: int = 30,
    global_batch_size: int | None = None,
    virtual_devices: bool = False,
    timeout_seconds: float = 900,
    starts: int = 1,
    output_dir: str = "benchmark",
):
    """Times the contenders on the workloads.

    Args:
        workloads: Sequence of names of `WORKLOADS`.
        contenders: Sequence of names of `CONTENDERS`. Those that are not
            installed are skipped with a message. Default: `BY_DEFAULT`.
        replica_counts: Sequence of integers, numbers of replicas.
        rounds: Integer, number of runs per contender and configuration.
        steps: Integer, steps per epoch; a run has a warm-up epoch and three
            measured ones.
        global_batch_size: Integer, rows of a step over all replicas. Default:
            each workload's own.
        virtual_devices: Boolean, use logical CPU devices even if there are
            GPUs. Without GPUs they are always used. Defaults to `False`.
        timeout_seconds: Float, time-out of one run, in seconds.
        starts: Integer, 1 or 2: with 2 each run is started once more, and finds
            what XLA has compiled in the first start. Defaults to 1.
        output_dir: String or path-like, folder to write to; new or empty.

    Returns:
        Dictionary, as written to `benchmark.json`.

    Raises:
        InputError: If an argument is invalid.
    """
    _require_known("workloads", workloads, WORKLOADS)
    _require_known("contenders", contenders, CONTENDERS)
    settings = _checked_settings(
        replica_counts,
        rounds,
        steps,
        global_batch_size,
        timeout_seconds,
        starts,
    )
    present, missing = _installed(contenders)
    folder = reports.empty_folder(output_dir)
    for name, reason in missing.items():
        print(f"left out: {name}: {reason}", flush=True)
    gpus = [] if virtual_devices else child_processes.visible_gpus()
    most = settings["replica_counts"][-1]
    if gpus and most > len(gpus):
        raise InputError(
            f"replica_counts has {most}, but {len(gpus)} GPUs are visible; "
            "ask for fewer, or for --virtual_devices"
        )
    settings["virtual_devices"] = not gpus
    report = {
        "machine": machine.describe(gpus),
        "versions": machine.versions(),
        "settings": settings,
        "left_out": missing,
    }
    report["runs"] = _run_all(
        schedule(workloads, present, settings), settings, folder
    )
    report["rows"] = figures.summarise(report["runs"])
    report["disagreements"] = figures.disagreements(report["runs"])
    text = json.dumps(report, indent=1) + "\n"
    write_text(folder / "benchmark.json", text)
    write_text(folder / "benchmark.md", tables.markdown(report))
    tables.print_tables(report)
    tables.draw(report, folder / "benchmark.png")
    return report


def _checked_settings(
    replica_counts, rounds, steps, global_batch_size, timeout_seconds, starts
):
    """Validates the numbers; returns them as a dictionary for the report."""
    if global_batch_size is not None:
        checked_integer(global_batch_size, "global_batch_size", minimum=1)
    return {
        "replica_counts": checked_counts(replica_counts),
        "rounds": checked_integer(rounds, "rounds", minimum=1),
        "steps": checked_integer(steps, "steps", minimum=1),
        "global_batch_size": global_batch_size,
        "timeout_seconds": checked_number(timeout_seconds, "timeout_seconds"),
        "starts": checked_integer(starts, "starts", minimum=1, maximum=2),
    }


def _installed(contenders):
    """Returns installed contenders, and the others with advice."""
    missing = left_out(contenders)
    present = [name for name in contenders if name not in missing]
    if not present:
        raise InputError(
            "None of the contenders can take part: "
            + "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        )
    return present, missing


def schedule(workloads, contenders, settings):
    """Returns the jobs in their order, as a dictionary per run.

    Within a round, contenders that are compared run one after the other.
    """
    jobs = []
    for number in range(1, settings["rounds"] + 1):
        for workload in workloads:
            able = [c for c in contenders if can_run(c, workload)]
            turns = [(c, 1) for c in able if CONTENDERS[c].one_device]
            turns += [
                (contender, count)
                for count in settings["replica_counts"]
                for contender in able
                if not CONTENDERS[contender].one_device
            ]
            for contender, count in turns:
                jobs.append(
                    {
                        "workload": workload,
                        "contender": contender,
                        "replicas": count,
                        "round": number,
                    }
                )
    return jobs


def can_run(contender, workload):
    """Whether a contender has a model for a workload."""
    return WORKLOADS[workload].is_in_pytorch or contender != "pytorch"


def _run_all(jobs, settings, folder):
    """Runs the jobs one after the other; returns them with their results."""
    runs = []
    for number, job in enumerate(jobs, start=1):
        name = "{workload}-{contender}-{replicas}-round-{round}".format(**job)
        print(f"[{number}/{len(jobs)}] {name} …", flush=True)
        begin = time.monotonic()
        try:
            result = _run_once(job, settings, folder / "runs" / name)
        except InputError as error:
            # The run's log has the complete error.
            reason = textwrap.shorten(str(error), 300, placeholder=" …")
            runs.append({**job, "failed": reason})
            print(f"    failed: {reason}", flush=True)
        else:
            runs.append({**job, "result": result})
            seconds = time.monotonic() - begin
            print(
                f"    {tables.in_words(result)} ({seconds:.0f} s)", flush=True
            )
    return runs


def _run_once(job, settings, folder):
    """Runs one job in a separate process; returns its result."""
    folder.mkdir(parents=True)
    rows = settings["global_batch_size"]
    job = {
        **job,
        "steps": settings["steps"],
        "virtual_devices": settings["virtual_devices"],
        "global_batch_size": rows
        or WORKLOADS[job["workload"]].global_batch_size,
    }
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-compiled-") as compiled:
        variables = environment(job, compiled)

        def start(folder):
            return child_processes.run_job(
                "benchmarks.child",
                job,
                folder,
                settings["timeout_seconds"],
                variables,
            )

        result = start(folder)
        if settings["starts"] > 1:
            (folder / "again").mkdir()
            again = start(folder / "again")
            result[SECOND_START] = again["seconds_to_first_step"]
    return result


def environment(job, compiled):
    """Returns the variables that select backend and devices for a job.

    Args:
        compiled: Path of the folder in which it keeps what XLA compiles.
    """
    contender = CONTENDERS[job["contender"]]
    backend = contender.backend
    variables = {
        "KERAS_BACKEND": backend,
        "KERASMGPU_XLA_CACHE": compiled,
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
    }
    if contender.keeps_programs:
        variables["JAX_COMPILATION_CACHE_DIR"] = compiled
        variables["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        variables["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    if job["virtual_devices"]:
        variables["CUDA_VISIBLE_DEVICES"] = "-1"
        if backend == "jax":
            flags = os.environ.get("XLA_FLAGS", "").split()
            count = job["replicas"]
            flags.append(f"--xla_force_host_platform_device_count={count}")
            variables["XLA_FLAGS"] = " ".join(flags)
            variables["JAX_PLATFORMS"] = "cpu"
    return variables


def _require_known(name, chosen, known):
    unknown = [item for item in chosen if item not in known]
    if unknown or not chosen or len(set(chosen)) < len(chosen):
        raise InputError(
            f"{name} must be some of {', '.join(known)}, each once. Received: "
            f"{', '.join(map(str, chosen)) or 'none'}"
        )
