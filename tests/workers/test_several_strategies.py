"""Strategies that a program of two workers makes one after the other."""

import re
import subprocess
import sys

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.job import membership
from kerasmgpu.job.cluster import Worker


@pytest.mark.slow
def test_each_strategy_of_a_job_trains_its_models():
    command = [sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2"]
    command += ["--", "-m", "tests.workers.strategies_program"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Enabling collective ops after program startup" not in done.stderr
    first, other = re.findall(r"\] losses (.*)", done.stdout)
    assert first == other
    *losses, last, _ = map(float, first.split())
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-4)
    assert last < losses[0]


def test_a_strategy_of_another_job_is_refused(monkeypatch):
    monkeypatch.setattr(membership, "_joined", [Worker(("a:1", "b:2"), 1)])
    assert membership.has_joined()
    same = membership.of_the_same_job(Worker(("a:3", "b:4"), 1))
    assert same.addresses == ("a:1", "b:2")
    with pytest.raises(InputError, match="this process is worker 1 of 2"):
        membership.of_the_same_job(Worker(("a:1",), 0))
