"""Jobs that shard variables over their workers end as one device does."""

import functools
import pickle
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.parity import harness
from tests.parity.cases import CASES
from tests.workers.sharded_program import READ_TIMEOUT_SECONDS

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
]

QUICK = (
    RUNS[0],
    "weights: clipnorm of sparse gradients",
    "weights in 2: masked loss per token",
)
"""Runs of the quick tier, in a job of two workers with one replica each."""

JOBS = [
    pytest.param(devices, marks=() if devices == 1 else pytest.mark.slow)
    for devices in (1, 2)
]


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """Function from a number of devices to its job's folder, and outcomes of
    its two workers.

    A job runs the cases of the tests that are to be run, no others.
    """
    wanted = {
        (item.callspec.params.get("devices"), item.callspec.params.get("run"))
        for item in request.session.items
        if item.path == request.path
    }

    @functools.cache
    def of(devices):
        folder = tmp_path_factory.mktemp("job")
        command = [sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2"]
        command += ["--", sys.executable, "-m", "tests.workers.sharded_program"]
        command += [str(folder), str(devices)]
        command += [run for run in RUNS if (devices, run) in wanted]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        paths = [folder / f"worker-{index}.pickle" for index in range(2)]
        return folder, [pickle.loads(path.read_bytes()) for path in paths]

    return of


@functools.cache
def on_one_device(name):
    return harness.run(CASES[name])


@pytest.mark.parametrize(
    "devices, run",
    [
        pytest.param(
            devices,
            run,
            id=f"{run}, 2 workers x {devices}",
            marks=() if devices == 1 and run in QUICK else pytest.mark.slow,
        )
        for number, run in enumerate(RUNS)
        # One number of devices for a run, the other for the next.
        for devices in (1 if run in QUICK else 1 + number % 2,)
    ],
)
def test_workers_follow_one_device(devices, run, outcomes):
    name = run.partition(": ")[2]
    first, second = (outcome[run] for outcome in outcomes(devices)[1])
    one = on_one_device(name)
    for what, distance in harness.distances(one, first).items():
        assert distance <= CASES[name].tolerance, f"{what}: {distance:.1e}"
    distances = harness.distances(first, second)
    assert max(distances.values()) == 0.0, f"workers differ: {distances}"
    assert first.spread == second.spread == 0.0


@pytest.mark.parametrize("devices", JOBS)
def test_all_workers_read_whole_values(devices, outcomes):
    """Of which each holds a part: 4 and 3 of 7 columns, or two each."""
    folder, (first, second) = outcomes(devices)
    widths = [(5, 4), (5, 3)] if devices == 1 else [(5, 2), (5, 2)]
    assert [one["part"].shape for one in (first, second)] == widths
    saved = keras.models.load_model(
        folder / "model.keras",
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


@pytest.mark.parametrize("devices", JOBS)
def test_the_first_worker_saves_and_the_others_give_their_parts(
    devices, outcomes
):
    folder, (first, second) = outcomes(devices)
    assert first["saves"] == 4 * [[(7,), (5, 7)]]
    assert first["failed"]
    assert second["saves"] == [] and "failed" not in second
    assert (folder / "all.weights.json").exists()
    by_functions = {path.name for path in folder.glob("of_*")}
    assert by_functions == {"of_0.keras", "of_0.h5", "of_0.weights.h5"}


@pytest.mark.parametrize("devices", JOBS)
def test_a_worker_that_reads_alone_gets_an_error_in_time(devices, outcomes):
    first, second = outcomes(devices)[1]
    assert "is sharded over 2 workers: all of them must" in first["message"]
    assert first["seconds"] < READ_TIMEOUT_SECONDS + 5
    for outcome in (first, second):  # The job goes on.
        np.testing.assert_array_equal(
            outcome["read again"], outcome["loaded weights"][0]
        )
