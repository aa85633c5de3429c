"""Jobs of several workers end with what one device gives, case by case."""

import numpy as np
import pytest

from benchmarks.exactness import harness
from benchmarks.exactness.registry import cases
from tests.finders import test_learning_rate

CASES = cases("parity")

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
}
"""Cases of the quick tier, in a job of two workers with one replica each."""

SLOW = {
    "metric that is no sum",
    "jit compile",
    "a python generator",
    "batch normalisation with a mask",
}
"""Cases of the slow tier; the others are nightly."""


def _tier(job, name):
    if job == (2, 1) and name in QUICK:
        return []
    return [pytest.mark.slow if name in SLOW else pytest.mark.nightly]


RUNS = [
    pytest.param(
        name,
        id=f"{job[0]} workers x {job[1]}, {name}",
        marks=[
            pytest.mark.job_case(*job, f"parity {name}"),
            *_tier(job, name),
        ],
    )
    for job, names in JOBS.items()
    for name in names
]


@pytest.mark.parametrize("name", RUNS)
def test_workers_follow_one_device(name, job, on_one_device):
    compare(CASES[name], on_one_device(CASES[name]), job.workers)


@pytest.mark.slow
@pytest.mark.job_case(2, 1, "finder")
def test_workers_find_the_learning_rate_of_one_device(job):
    first, second = job.workers
    assert first == second
    said = [line for line in job.lines if "learning rate: " in line]
    assert len(said) == 1
    one = test_learning_rate.find(test_learning_rate.net()).losses
    np.testing.assert_allclose(first[:20], one[:20], rtol=1e-4)


def compare(case, one, workers):
    """Asserts that all workers of a job ended alike, and as one device."""
    for what, distance in harness.distances(one, workers[0]).items():
        assert distance <= case.tolerance, f"{what}: {distance:.1e}"
    for other in workers[1:]:
        distances = harness.distances(workers[0], other)
        assert max(distances.values()) == 0.0, f"workers differ: {distances}"
    assert all(worker.spread == 0.0 for worker in workers)
