"""Programs of `keras.distribution` feed what they feed one device."""

import functools

import numpy as np
import pytest

from tests.devices import device_names
from tests.workers import distribution_program
from tests.workers.distribution_program import DISTRIBUTIONS, SHARDED


@functools.cache
def on_one_device():
    return distribution_program.trained()


def compare(found, skipped=None):
    expected = on_one_device()
    assert list(found) == [kind for kind in expected if kind != skipped]
    for kind, weights in found.items():
        for one, other in zip(expected[kind], weights, strict=True):
            np.testing.assert_allclose(other, one, atol=1e-5, err_msg=kind)


def test_one_process_reads_any_data():
    devices = [name.lower() for name in device_names(3)]
    compare(distribution_program.trained(DISTRIBUTIONS["data"](devices)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.job_case(2, 1, f"distribution {name}")
        )
        for name in DISTRIBUTIONS
    ],
)
def test_workers_read_any_data(name, job):
    devices = [name.lower() for name in device_names(2)]
    costs = distribution_program.layer_costs(DISTRIBUTIONS[name](devices))
    for found, error, costs_in_job in job.workers:
        assert costs_in_job == costs
        if name == "data":
            compare(found)
        else:
            compare(found, skipped=SHARDED)
            assert "a data set with the auto_shard_policy OFF" in error
    said = "\n".join(job.lines)
    assert ("Received: auto_shard_dataset=False" in said) == (name == "data")
