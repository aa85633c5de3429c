"""Jobs that shard variables over their workers end as one device does."""

import contextlib

import keras
import numpy as np
import pytest

from benchmarks.exactness.registry import cases
from tests.workers.sharded_program import READ_TIMEOUT_SECONDS, tuned
from tests.workers.test_parity import compare

CASES = cases("parity")

RUNS = [
    # One setting for a case, another for the next.
    "weights: uneven last batch",
    "optimizer: first batch of one row",
    "weights in 2: steps per execution",
    "weights: run eagerly",
    "weights in 2: masked loss per token",
    "optimizer: global clipnorm",
    "weights: clipnorm of sparse gradients",
    "weights in 2: gradient accumulation",
    "optimizer: loss scale with overflow on one replica",
    "weights in 2: batch normalisation",
    "optimizer: dropout",
    "weights: weights of two types",
    "optimizer offloaded in 2: loss scale with overflow on one replica",
]

QUICK = (RUNS[0],)
"""Runs of the quick tier, on workers of one replica each."""

SLOW = (
    "weights: clipnorm of sparse gradients",
    "weights in 2: masked loss per token",
    "optimizer offloaded in 2: loss scale with overflow on one replica",
    "mesh 2x2: uneven last batch",
    "weights grouped: global clipnorm",
)
"""Runs of the slow tier; the others are nightly."""

MESHES = [
    (2, 2, "mesh 2x2: uneven last batch"),
    (2, 2, "mesh 2x2: dropout"),
    (2, 2, "mesh 2x2: batch normalisation"),
    (2, 2, "mesh 2x2: clipnorm of sparse gradients"),
    (2, 2, "mesh 2x2: run eagerly"),
    (2, 2, "mesh 2x2: masked loss per token"),
    (2, 2, "mesh 2x2 in 2: batch normalisation"),
    (2, 2, "mesh 2x2 in 2: clipnorm of sparse gradients"),
    (4, 1, "mesh 2x2 in 2: uneven last batch"),
    (2, 2, "weights grouped: clipnorm of sparse gradients"),
    (2, 2, "weights grouped: global clipnorm"),
    (2, 2, "weights grouped: run eagerly"),
    (2, 2, "weights grouped in 2: masked loss per token"),
]
"""Workers, devices of each, and a run: rows between workers, columns inside where
a worker has several devices."""


def _tier(run):
    return pytest.mark.slow if run in SLOW else pytest.mark.nightly


FILES = [
    pytest.param(
        devices,
        marks=[
            pytest.mark.job_case(2, devices, "sharded files"),
            pytest.mark.slow if devices == 1 else pytest.mark.nightly,
        ],
    )
    for devices in (1, 2)
]


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(
            run,
            id=f"{run}, 2 workers x {devices}",
            marks=[
                pytest.mark.job_case(2, devices, f"sharded {run}"),
                *([] if run in QUICK else [_tier(run)]),
            ],
        )
        for number, run in enumerate(RUNS)
        # One number of devices for a run, the other for the next.
        for devices in (1 if run in QUICK else 1 + number % 2,)
    ],
)
def test_workers_follow_one_device(run, job, on_one_device):
    name = run.partition(": ")[2]
    compare(CASES[name], on_one_device(CASES[name]), job.workers)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(
            run,
            id=run,
            marks=[
                pytest.mark.job_case(workers, devices, f"sharded {run}"),
                _tier(run),
            ],
        )
        for workers, devices, run in MESHES
    ],
)
def test_workers_on_a_mesh_follow_one_device(run, job, on_one_device):
    name = run.partition(": ")[2]
    compare(CASES[name], on_one_device(CASES[name]), job.workers)


@pytest.mark.slow
@pytest.mark.job_case(2, 1, "sharded int8 base")
def test_adapters_of_an_int8_base(job):
    """Also read in functions of one's own, whose callers read the parts."""
    _, expected, _ = tuned(contextlib.nullcontext)
    for dtypes, results, errors in job.workers:
        assert "int8" in dtypes
        for own, one in zip(results, expected, strict=True):
            np.testing.assert_allclose(own, one, rtol=1e-6, atol=1e-6)
        assigns, maps = errors
        assert "can read or assign it, not both" in assigns
        assert "a map of tf.data" in maps


@pytest.mark.parametrize("devices", FILES)
def test_all_workers_read_whole_values(devices, job):
    """Of which each holds a part: 4 and 3 of 7 columns, or two each."""
    first, second = job.workers
    widths = [(5, 4), (5, 3)] if devices == 1 else [(5, 2), (5, 2)]
    assert [one["part"].shape for one in (first, second)] == widths
    saved = keras.models.load_model(
        job.files / "model.keras",
        {"Backwards": type("Backwards", (keras.layers.Dense,), {})},
    ).get_weights()
    for arrays in zip(
        saved,
        first["weights"],
        second["weights"],
        first["loaded weights"],
        second["loaded weights"],
    ):
        for array in arrays[1:]:
            np.testing.assert_array_equal(array, arrays[0])
    first_columns = saved[0][:, : widths[0][1]]
    np.testing.assert_array_equal(first["part"], first_columns)


@pytest.mark.parametrize("devices", FILES)
def test_the_first_worker_saves_and_the_others_give_their_parts(devices, job):
    first, second = job.workers
    assert first["saves"] == 4 * [[(7,), (5, 7)]]
    assert first["failed"]
    assert second["saves"] == [] and "failed" not in second
    assert (job.files / "all.weights.json").exists()
    by_functions = {path.name for path in job.files.glob("of_*")}
    assert by_functions == {"of_0.keras", "of_0.h5", "of_0.weights.h5"}


@pytest.mark.parametrize("devices", FILES)
def test_a_worker_that_reads_alone_gets_an_error_in_time(devices, job):
    first, second = job.workers
    assert "is sharded over 2 workers: all of them must" in first["message"]
    assert first["seconds"] < READ_TIMEOUT_SECONDS + 5
    for outcome in (first, second):  # The job goes on.
        np.testing.assert_array_equal(
            outcome["read again"], outcome["loaded weights"][0]
        )
