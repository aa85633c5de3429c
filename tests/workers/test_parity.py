"""Jobs of several workers end with what one device gives, case by case."""

import functools
import pickle
import subprocess
import sys

import pytest

from tests.parity import harness
from tests.parity.cases import CASES

JOBS = {
    # (workers, replicas of each): cases of the parity table. More of them run
    # with sharded variables, and on workers of two devices, in
    # `test_sharded_variables.py`.
    (2, 1): [
        "uneven last batch",
        "rows of a batch that stay",
        "rows that a mask picks of two blocks",
        "pairs and ranks of a batch",
        "sample weight",
        "jit compile",
        "several inputs and outputs",
        "loss mean with sample weight",
        "dice",
        "own train step with a mean",
        "add loss of a mean",
        "batch normalisation with a mask",
        "batch renormalisation",
        "unseeded noise in a layer",
        "a python generator",
        "data of unknown length",
        "shuffled arrays",
        "strings",
        "sparse tensors",
        "ragged tensors",
        "metric that is no sum",
        "metric function of the whole batch",
    ],
    (3, 1): [
        "one row in the last batch",
        "first batch of one row",
        "convolution with empty replicas",
        "batch normalisation",
    ],
}

for _names in JOBS.values():
    # A case of a layer that this version of Keras doesn't have isn't there.
    _names[:] = [name for name in _names if name in CASES]

QUICK = {
    "uneven last batch",
    "metric that is no sum",
}
"""Cases of the quick tier, in a job of two workers with one replica each."""

RUNS = [
    pytest.param(
        job,
        name,
        id=f"{job[0]} workers x {job[1]}, {name}",
        marks=() if job == (2, 1) and name in QUICK else pytest.mark.slow,
    )
    for job, names in JOBS.items()
    for name in names
]


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """Function from a job to the outcomes of each of its workers.

    A job runs the cases of the tests that are to be run, no others.
    """
    wanted = {
        tuple(item.callspec.params.values())
        for item in request.session.items
        if item.path == request.path
    }

    @functools.cache
    def of(job):
        num_workers, virtual_devices = job
        folder = tmp_path_factory.mktemp("job")
        command = [sys.executable, "-m", "kerasmgpu.launch"]
        command += [f"--num_workers={num_workers}", "--", sys.executable]
        command += ["-m", "tests.workers.program", str(folder)]
        command += [str(virtual_devices)]
        command += [name for name in JOBS[job] if (job, name) in wanted]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        paths = [folder / f"worker-{i}.pickle" for i in range(num_workers)]
        return [pickle.loads(path.read_bytes()) for path in paths]

    return of


@functools.cache
def on_one_device(name):
    return harness.run(CASES[name])


@pytest.mark.parametrize("job, name", RUNS)
def test_workers_follow_one_device(job, name, outcomes):
    one = on_one_device(name)
    workers = [outcome[name] for outcome in outcomes(job)]
    for what, distance in harness.distances(one, workers[0]).items():
        assert distance <= CASES[name].tolerance, f"{what}: {distance:.1e}"
    for other in workers[1:]:
        distances = harness.distances(workers[0], other)
        assert max(distances.values()) == 0.0, f"workers differ: {distances}"
    assert all(worker.spread == 0.0 for worker in workers)
