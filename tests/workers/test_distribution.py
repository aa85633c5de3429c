"""Programs of `keras.distribution` feed what they feed one device."""

import functools

import numpy as np
import pytest

import kerasmgpu
from tests.devices import device_names
from tests.workers import distribution_program
from tests.workers.distribution_program import (
    DISTRIBUTIONS,
    FOUND,
    IMAGES,
    KINDS,
    SHARDED,
    THREE_BY_TWO,
    TOKENS,
)


@functools.cache
def on_one_device(kind):
    return distribution_program.weights(None, kind)


def compare(found, kinds):
    assert list(found) == list(kinds)
    for kind, weights in found.items():
        for one, other in zip(on_one_device(kind), weights, strict=True):
            np.testing.assert_allclose(other, one, atol=1e-5, err_msg=kind)


@pytest.mark.slow
def test_one_process_reads_any_data():
    kinds = "a generator", "a PyDataset", "distributed by hand"
    devices = [name.lower() for name in device_names(3)]
    distribution = DISTRIBUTIONS["data"](devices)
    compare(distribution_program.trained(distribution, kinds), kinds)


@pytest.mark.nightly(but=1)
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
            compare(found, KINDS)
        else:
            compare(found, [kind for kind in KINDS if kind != SHARDED])
            assert "a data set with the auto_shard_policy OFF" in error
    said = "\n".join(job.lines)
    assert ("Received: auto_shard_dataset=False" in said) == (name == "data")


@pytest.mark.slow
@pytest.mark.job_case(2, 1, f"distribution {FOUND}")
def test_workers_have_the_layout_that_the_first_one_finds(job):
    one = kerasmgpu.strategy(num_replicas=1)
    weights, _ = distribution_program.with_found_layout(one)
    (first, layouts), (second, others) = job.workers
    assert layouts and layouts == others
    for found in (first, second):
        for own, expected in zip(found, weights, strict=True):
            np.testing.assert_allclose(own, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.job_case(2, 3, f"distribution {THREE_BY_TWO}")
def test_workers_that_are_no_rows_of_the_mesh_follow_the_layout(job):
    weights, _ = distribution_program.on_three_by_two(
        kerasmgpu.strategy(num_replicas=1)
    )
    for (found, parts), columns in zip(job.workers, (4, 3)):
        for own, expected in zip(found, weights, strict=True):
            np.testing.assert_allclose(own, expected, atol=1e-5)
        assert parts["hidden/kernel"] == 3 * [(5, columns)]
        assert parts["end/kernel"] == [(columns, 1), (columns, 0), (columns, 0)]


@pytest.mark.slow
@pytest.mark.job_case(2, 2, f"distribution {TOKENS}")
def test_workers_divide_tokens(job):
    """Over both workers, and inside of each, where rows are between them."""
    weights = distribution_program.on_tokens(kerasmgpu.strategy(num_replicas=1))
    for of_meshes in job.workers:
        for found in of_meshes:
            for own, expected in zip(found, weights, strict=True):
                np.testing.assert_allclose(own, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.job_case(2, 2, f"distribution {IMAGES}")
def test_workers_send_each_other_rows_of_images(job):
    """Over both workers, also three devices away, and inside of each."""
    weights = distribution_program.on_images(kerasmgpu.strategy(num_replicas=1))
    for of_meshes in job.workers:
        for found in of_meshes:
            for own, expected in zip(found, weights, strict=True):
                np.testing.assert_allclose(own, expected, atol=1e-5)
