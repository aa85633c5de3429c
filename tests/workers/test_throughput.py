"""The log of the first worker shows the whole job, and who is slow."""

import json

import pytest

from kerasmgpu.report import figures, run_files
from tests.workers.straggler_program import LATE, SECONDS, Late

pytestmark = [pytest.mark.slow, pytest.mark.job_case(2, 1, "straggler")]


def test_a_straggler_is_named_and_rows_are_counted_once(job):
    path = job.files / "throughput.jsonl"
    epochs = [json.loads(line) for line in path.read_text().splitlines()]
    assert [epoch["examples"] for epoch in epochs] == [44, 44, 44]
    assert [epoch["steps"] for epoch in epochs] == [6, 6, 6]
    for epoch in epochs:
        assert epoch["replicas"] == 2
        assert epoch["slowest_worker"] == 1
        slow = epoch["slowest_worker_step_seconds"]
        assert slow > epoch["fastest_worker_step_seconds"]
        assert slow >= SECONDS
    (run,) = run_files.read([f"{path}.run"])
    assert (run.facts["workers"], run.replicas) == (2, 2)
    assert [record["epoch"] for record in run.history] == [1, 2, 3]
    assert run.values("examples_per_second") == [
        (number, epoch["examples_per_second"])
        for number, epoch in enumerate(epochs, start=1)
    ]
    parts = figures.time_parts(run)
    # The first worker waits for the other one in each step, and computes little.
    together = parts["communication, waiting for other workers"]
    assert together > 0.8 * 3 * 6 * SECONDS
    assert parts["computation"] < 0.5 * together
    # Between its steps the other worker has a slow callback.
    late = parts[f"callback {Late.__name__} on worker 1"]
    assert late > 0.8 * 3 * 6 * LATE
    assert sum(parts.values()) == pytest.approx(
        json.loads((job.files / "wall.json").read_text()), rel=0.05
    )
    # For the Python function the batch's outputs [8, 2] are gathered.
    assert figures.sent(run)["activations, all-gather"] == 64
