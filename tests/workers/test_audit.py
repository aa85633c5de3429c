"""Workers of a job compare steps with one device each, and change nothing."""

import json

import numpy as np
import pytest

from kerasmgpu.callbacks import audit_verdict

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(how, marks=pytest.mark.job_case(2, 2, f"audited {how}"))
        for how in ("whole", "sharded")
    ],
)
def test_all_workers_compare_the_same_steps(job, how):
    findings = [findings for findings, _ in job.workers]
    assert [step for step, _ in findings[0]] == list(range(1, 9))
    assert [step for step, _ in findings[1]] == list(range(1, 9))
    equal = {audit_verdict.EQUAL, audit_verdict.ROUNDING}
    assert {verdict for each in findings for _, verdict in each} <= equal
    for _, (audited, plain) in job.workers:
        for one, other in zip(audited, plain):
            np.testing.assert_array_equal(one, other)
    written = json.loads((job.files / "evidence.json").read_text())
    assert (written["workers"], written["replicas"]) == (2, 4)
    assert written["steps_compared"] == 8
