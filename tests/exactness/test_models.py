"""Models that people train end on replicas as they do on one device.

Only a few of the table: `python -m benchmarks.exactness --table=models` trains
all of them.
"""

import functools

import keras
import pytest

from benchmarks.exactness import harness
from benchmarks.exactness.comparison import Measure
from benchmarks.exactness.registry import cases

QUICK = {"mixture of experts"}

RUNS = [
    pytest.param(
        case,
        count,
        id=f"{case.name}, {count} replicas",
        marks=() if case.name in QUICK else pytest.mark.nightly,
    )
    for case in cases("models").values()
    if case.in_suite
    for count in case.replica_counts
]

measured = functools.lru_cache(maxsize=1)(Measure)


@pytest.mark.slow
@pytest.mark.parametrize("case, num_replicas", RUNS)
def test_replicas_follow_one_device(case, num_replicas):
    result = measured(case)(f"kerasmgpu, {num_replicas}")
    assert result["in_parity"], result
    assert result["with rule"] > 0, "no operation ran on a replica's own rows"
    assert not result["whole"], "products that no replicas share"


@pytest.mark.nightly
def test_another_model_is_told_apart(replicas, monkeypatch):
    """What judges the models is not blind."""
    case = cases("models")["clip"]
    with monkeypatch.context() as changed:
        changed.setattr(keras.ops, "normalize", lambda x, axis: x)
        many = harness.run(case, replicas(3))
    assert harness.distance_of_each_weight(measured(case).one, many) > 1e-2
