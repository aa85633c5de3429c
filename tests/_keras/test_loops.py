"""Evaluations of a job are of the same batches on all workers."""

import keras
import numpy as np
import pytest

import kerasmgpu
from kerasmgpu.job import workers

X = np.ones((10, 3), "float32")


def evaluated(others_executions, replicas, monkeypatch, **settings):
    """Evaluates as the first of two workers; the second one's are given."""
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.evaluate(X, X[:, :1], verbose=0)  # Another evaluation's don't count.
    monkeypatch.setattr(workers, "count", lambda strategy: 2)
    monkeypatch.setattr(workers, "broadcast", lambda _, data: data)
    monkeypatch.setattr(workers, "any_of", lambda _, flag: flag)
    monkeypatch.setattr(
        workers,
        "gather",
        lambda _, numbers: np.array([numbers, [others_executions]]),
    )
    return model.evaluate(X, X[:, :1], batch_size=4, verbose=0, **settings)


def test_workers_that_evaluate_other_batches_are_told(replicas, monkeypatch):
    with pytest.raises(kerasmgpu.InputError, match="worker 0 3, worker 1 2"):
        evaluated(2, replicas, monkeypatch)


def test_workers_evaluate_the_same_batches(replicas, monkeypatch):
    assert evaluated(2, replicas, monkeypatch, steps=2) > 0


def test_the_first_worker_evaluates_not_alone(replicas, monkeypatch):
    strategy = replicas(2)
    monkeypatch.setattr(strategy.extended, "announce", print)
    with pytest.raises(kerasmgpu.InputError, match="on every worker"):
        evaluated(3, lambda _: strategy, monkeypatch)
