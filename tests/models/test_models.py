"""Models that people train end on replicas as they do on one device.

Only a few of the table: `python -m tests.models` trains all of them.
"""

import functools

import keras
import pytest

from tests.models import measuring
from tests.models.all import MODELS

QUICK = {"mixture of experts"}

RUNS = [
    pytest.param(
        model,
        count,
        id=f"{model.name}, {count} replicas",
        marks=() if model.name in QUICK else pytest.mark.nightly,
    )
    for model in MODELS.values()
    if model.in_suite
    for count in model.replica_counts
]


@functools.lru_cache(maxsize=1)
def on_one_device(model):
    return measuring.outcome(model)[0]


@pytest.mark.parametrize("model, num_replicas", RUNS)
def test_replicas_follow_one_device(model, num_replicas, replicas):
    one = on_one_device(model)
    figures = measuring.measure(model, replicas(num_replicas), one)
    for what, distance in figures.distances.items():
        assert distance <= model.tolerance, f"{what}: {distance:.1e}"
    assert not figures.copies, "the replicas' copies differ"
    assert not figures.data_changed, "fit changed the user's arrays"
    assert figures.with_rule > 0, "no operation ran on a replica's own rows"
    assert not figures.whole, "products that no replicas share"


@pytest.mark.nightly
def test_another_model_is_told_apart(replicas, monkeypatch):
    """What judges the models is not blind."""
    model = MODELS["clip"]
    one = on_one_device(model)
    with monkeypatch.context() as changed:
        changed.setattr(keras.ops, "normalize", lambda x, axis: x)
        many, _ = measuring.outcome(model, replicas(3))
    assert measuring.distance_of_each_weight(one, many) > 1e-2
