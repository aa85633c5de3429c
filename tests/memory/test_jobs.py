"""The predicted memory of a worker, beside what its allocator counts."""

import os
import re
import subprocess
import sys

import pytest

from kerasmgpu.memory import memory
from tests.memory import allocator, job_program

SHARDS = ("none", "optimizer", "weights")
OF_WORKERS = {"replicas_per_worker": 1, "device_type": "CPU", "show": False}


@pytest.fixture(scope="module")
def predicted():
    report = memory(
        "tests.memory.job_program:build",
        global_batch_size=job_program.ROWS,
        replicas=(2,),
        shard=SHARDS,
        **OF_WORKERS,
    )
    return {row["shard"]: without_batch(row) for row in report["rows"]}


def without_batch(row):
    """The job's batch is a constant of its data set, which isn't counted."""
    return row["total"] - row["batch"]


def peak(folder, *arguments):
    """The larger one of two workers' measured peaks, in bytes."""
    launch = "kerasmgpu.launch --num_workers=2 -- -m tests.memory.job_program"
    done = subprocess.run(
        [sys.executable, "-m", *launch.split(), *arguments],
        env={**os.environ, **allocator.environment(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    peaks = [int(text) for text in re.findall(r"measured (\d+)", done.stdout)]
    assert len(peaks) == 2, done.stderr[-3000:]
    return max(peaks)


@pytest.mark.slow
@pytest.mark.skipif(not allocator.has_compiler(), reason="needs a C compiler")
@pytest.mark.parametrize("shard", SHARDS)
def test_a_worker_needs_what_is_predicted(predicted, shard, tmp_path):
    assert predicted[shard] == pytest.approx(peak(tmp_path, shard), rel=0.1)


@pytest.mark.slow
@pytest.mark.skipif(not allocator.has_compiler(), reason="needs a C compiler")
@pytest.mark.parametrize(
    ("build", "rows", "shard", "most", "least"),
    [
        ("build_wide", job_program.WIDE_ROWS, "weights", 0.5, 0.3),
        ("build_normalised", job_program.NORMALISED_ROWS, "none", 1.0, 0.9),
    ],
)
def test_micro_batches_save_what_is_predicted(
    build, rows, shard, most, least, tmp_path
):
    report = memory(
        f"tests.memory.job_program:{build}",
        global_batch_size=rows,
        replicas=(2,),
        shard=shard,
        micro_batches=(1, 2, 4),
        **OF_WORKERS,
    )
    measured = []
    for row in report["rows"]:
        parts = str(row["micro_batches"])
        measured.append(peak(tmp_path, shard, build, parts))
        assert without_batch(row) == pytest.approx(measured[-1], rel=0.1)
    assert least < measured[2] / measured[0] < most
