"""Strategies that a program of two workers makes one after the other."""

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.job import membership
from kerasmgpu.job.cluster import Worker


@pytest.mark.nightly
@pytest.mark.job_case(2, 1, "strategies")
def test_each_strategy_of_a_job_trains_its_models(job):
    assert "Enabling collective ops after program startup" not in job.output
    first, other = job.workers
    assert first == other
    *losses, last = first[0]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-4)
    assert last < losses[0]


def test_a_strategy_of_another_job_is_refused(monkeypatch):
    monkeypatch.setattr(membership, "_joined", [Worker(("a:1", "b:2"), 1)])
    assert membership.has_joined()
    same = membership.of_the_same_job(Worker(("a:3", "b:4"), 1))
    assert same.addresses == ("a:1", "b:2")
    with pytest.raises(InputError, match="this process is worker 1 of 2"):
        membership.of_the_same_job(Worker(("a:1",), 0))
