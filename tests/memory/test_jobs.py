"""The predicted memory of a worker, beside what its allocator counts."""

import os
import re
import subprocess
import sys

import pytest

from kerasmgpu.memory import memory
from tests.memory import allocator, job_program

SHARDS = ("none", "optimizer", "weights")


@pytest.fixture(scope="module")
def predicted():
    report = memory(
        "tests.memory.job_program:build",
        global_batch_size=job_program.ROWS,
        replicas=(2,),
        shard=SHARDS,
        show=False,
    )
    return {row["shard"]: row["total"] for row in report["rows"]}


@pytest.mark.slow
@pytest.mark.skipif(not allocator.has_compiler(), reason="needs a C compiler")
@pytest.mark.parametrize("shard", SHARDS)
def test_a_worker_needs_what_is_predicted(predicted, shard, tmp_path):
    launch = "kerasmgpu.launch --num_workers=2 -- -m tests.memory.job_program"
    done = subprocess.run(
        [sys.executable, "-m", *launch.split(), shard],
        env={**os.environ, **allocator.environment(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    peaks = [int(text) for text in re.findall(r"measured (\d+)", done.stdout)]
    assert len(peaks) == 2, done.stderr[-3000:]
    assert predicted[shard] == pytest.approx(max(peaks), rel=0.1)
