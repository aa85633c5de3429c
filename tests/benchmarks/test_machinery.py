"""A job of workers without TensorFlow is lost, started anew, and measured."""

import time

import pytest

from benchmarks.machinery import table
from benchmarks.machinery.__main__ import run_job


@pytest.mark.slow
def test_a_job_of_two_machines_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    began = time.monotonic()
    figures = run_job(2, 2, 0.5, tmp_path)
    assert figures["workers"] == 2
    # Back-off, a worker's error, and two starts of Python.
    assert 1 < figures["restart_seconds"] < figures["seconds"]
    assert figures["seconds"] <= time.monotonic() - began
    for name in ("met", "notice", "end"):
        assert 0 < figures[f"{name}_seconds"] < figures["seconds"]
    # A hello, an answer and a call back, each with a handshake.
    assert 0.5 < figures["start_bytes"] < 3
    assert 0 < figures["start_cpu"] < figures["seconds"]
    lines = table.markdown([figures, figures]).splitlines()
    assert lines[0] == "| workers | 2 | 2 |"
    assert len(lines) == 16


def test_figures_are_of_the_moments_that_they_name():
    moments = {
        "a": {"cpu": 1.0, "sent": 1000, "received": 500, "time": 3.0},
        "b": {"cpu": 1.5, "sent": 3000, "received": 700, "time": 4.0},
    }
    assert table.spent(moments, "a", "b", "cpu") == 0.5
    assert table.traffic(moments, "a", "b") == pytest.approx(2.2)
    assert table.latest([moments, {"a": {"time": 9.0}}], "a") == 9.0
