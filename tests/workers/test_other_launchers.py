"""Jobs that `mpirun`, `torchrun` and others start are jobs of several workers.

`mpirun` and `mpiexec` are run where they are installed; of each launcher the
variables that it sets are set here.
"""

import os
import shutil
import subprocess
import sys

import pytest

from benchmarks.exactness.registry import cases
from tests.job.test_launchers import OPEN_MPI, TORCHRUN
from tests.workers import shared_job
from tests.workers.test_parity import compare

CASES = cases("parity")

NAME = "uneven last batch"
PROGRAM = ["-m", "tests.workers.shared_program"]

RANKS = {
    "mpirun": (OPEN_MPI, "OMPI_COMM_WORLD_RANK"),
    "torchrun": (TORCHRUN, "RANK"),
}
"""One that gives no address, and one that does."""


def ended(processes):
    """Waits for processes; returns their output."""
    try:
        said = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert not any(process.returncode for process in processes), said
    return said


def compare_with_one_device(folder, one):
    workers = shared_job.returned(folder, 0, 2)
    compare(CASES[NAME], one, workers)


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("launcher", RANKS)
def test_two_processes_train_one_model(launcher, tmp_path, on_one_device):
    variables, rank = RANKS[launcher]
    command = [sys.executable, *PROGRAM, str(tmp_path), "1", f"parity {NAME}"]
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, **variables, rank: str(index)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(2)
    ]
    ended(processes)
    compare_with_one_device(tmp_path, on_one_device(CASES[NAME]))


@pytest.mark.slow
@pytest.mark.parametrize("program", ["mpirun", "mpiexec"])
def test_real_mpi(program, tmp_path, on_one_device):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    command = [program, "-n", "2", sys.executable, *PROGRAM]
    root = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    more_than_cores = {
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"
    }
    process = subprocess.Popen(
        [*command, str(tmp_path), "1", f"parity {NAME}"],
        env={**os.environ, **root, **more_than_cores},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ended([process])
    compare_with_one_device(tmp_path, on_one_device(CASES[NAME]))


@pytest.mark.slow
def test_several_machines_without_their_names_end_in_one_line():
    variables = {**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "4"}
    done = subprocess.run(
        [sys.executable, "-m", "kerasmgpu", "polynomial", "--steps=1"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: mpirun started this process as one of seve")
