"""The predicted memory of a worker, beside what its allocator counts."""

import os
import re
import subprocess
import sys

import pytest

from kerasmgpu.memory import memory
from tests.memory import allocator, job_program

SHARDS = ("none", "optimizer", "weights")
WIDE = ("build_wide", job_program.WIDE_ROWS, "weights", (1, 2, 4))
NORMALISED = ("build_normalised", job_program.NORMALISED_ROWS, "none", (1, 4))
SETTINGS = [f"build,{shard},1" for shard in SHARDS]
SETTINGS += [
    f"{build},{shard},{count}"
    for build, _, shard, parts in (WIDE, NORMALISED)
    for count in parts
]
"""What `job_program` measures, in a single job."""

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


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """For each setting, the larger one of two workers' peaks, in bytes."""
    launch = "kerasmgpu.launch --num_workers=2 -- -m tests.memory.job_program"
    environment = allocator.environment(tmp_path_factory.mktemp("library"))
    done = subprocess.run(
        [sys.executable, "-m", *launch.split(), *SETTINGS],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = re.findall(r"(\S+) measured (\d+)", done.stdout)
    assert len(found) == 2 * len(SETTINGS), done.stderr[-3000:]
    return {
        setting: max(int(peak) for name, peak in found if name == setting)
        for setting in SETTINGS
    }


@pytest.mark.slow
@pytest.mark.skipif(not allocator.has_compiler(), reason="needs a C compiler")
@pytest.mark.parametrize("shard", SHARDS)
def test_a_worker_needs_what_is_predicted(predicted, measured, shard):
    assert predicted[shard] == pytest.approx(
        measured[f"build,{shard},1"], rel=0.1
    )


@pytest.mark.slow
@pytest.mark.skipif(not allocator.has_compiler(), reason="needs a C compiler")
@pytest.mark.parametrize(
    ("build", "rows", "shard", "parts", "most", "least"),
    [
        (*WIDE, 0.5, 0.3),
        (*NORMALISED, 1.0, 0.9),
    ],
)
def test_micro_batches_save_what_is_predicted(
    measured, build, rows, shard, parts, most, least
):
    report = memory(
        f"tests.memory.job_program:{build}",
        global_batch_size=rows,
        replicas=(2,),
        shard=shard,
        micro_batches=parts,
        **OF_WORKERS,
    )
    peaks = [measured[f"{build},{shard},{one}"] for one in parts]
    for row, peak in zip(report["rows"], peaks, strict=True):
        assert without_batch(row) == pytest.approx(peak, rel=0.1)
    assert least < peaks[-1] / peaks[0] < most
