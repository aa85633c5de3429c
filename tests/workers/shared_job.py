"""Runs the cases of several tests in one job; `conftest.py` has the fixture."""

import dataclasses
import fcntl
import pathlib
import pickle
import re
import subprocess
import sys

from tests.workers import shared_program

SECONDS = 900


@dataclasses.dataclass(frozen=True)
class Case:
    """A case of a job; see `shared_program`.

    Attributes:
        num_workers: Integer, workers of the job.
        devices: Integer, logical devices of each.
        name: String, a program's name and its argument.
    """

    num_workers: int
    devices: int
    name: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        workers: List of what each worker returned.
        files: Path, the folder that the case wrote to.
        lines: List of the lines that the workers printed in this case.
        output: String, what the whole job printed.
    """

    workers: list
    files: pathlib.Path
    lines: list
    output: str


def outcome(case, cases, base):
    """Runs the job of a case, unless it was run, and returns the outcome.

    Args:
        case: `Case`.
        cases: List of all `Case`s that are wanted, of other jobs too.
        base: Path of a folder that all of pytest's processes share.

    Raises:
        AssertionError: If the case raised, or the job ended before its end.
    """
    number_of_job = case.num_workers, case.devices
    names = [
        one.name
        for one in dict.fromkeys(cases)
        if (one.num_workers, one.devices) == number_of_job
    ]
    folder = base / "job-{}-{}".format(*number_of_job)
    output = _output(folder, case, names)
    number = names.index(case.name)
    return Outcome(
        returned(folder, number, case.num_workers, output),
        folder / "files" / str(number),
        _lines(output, number),
        output,
    )


def returned(folder, number, num_workers, output=""):
    """List of what each worker of a job returned of a case."""
    found, errors = [], []
    for index in range(num_workers):
        path = shared_program.path_of(folder, number, index)
        assert path.exists(), f"worker {index} did not end it\n{output}"
        outcome, error = pickle.loads(path.read_bytes())
        found.append(outcome)
        errors += [f"on worker {index}: {error}"] * (error is not None)
    assert not errors, "\n".join(errors)
    return found


def _output(folder, case, names):
    """What a job printed. The first process that asks runs it."""
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / "output.txt"
        if not path.exists():
            folder.mkdir()
            command = [sys.executable, "-m", "kerasmgpu.launch"]
            command += [f"--num_workers={case.num_workers}", "--"]
            command += ["-m", "tests.workers.shared_program", str(folder)]
            with path.open("w") as file:
                subprocess.run(
                    [*command, str(case.devices), *names],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    timeout=SECONDS,
                )
        return path.read_text(errors="replace")


def _lines(output, number):
    """Lines of a case, with the numbers of the workers before them."""
    running, found = {}, []
    for line in output.splitlines():
        worker = re.match(r"\[\d+\] |", line)[0]
        if line.startswith(f"{worker}{shared_program.BEGIN} "):
            running[worker] = int(line.rpartition(" ")[2])
        elif worker and running.get(worker) == number:
            found.append(line)
    return found
