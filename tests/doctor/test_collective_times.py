"""The timed programs send what they say, and give the right values."""

import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu import strategies
from kerasmgpu.doctor import collective_times
from kerasmgpu.partitioner.lowering.collectives import CollectiveReplicas

WRITTEN_AS = {
    "all_reduce": ["all_reduce"],
    "all_gather": ["all_gather"],
    "reduce_scatter": ["reduce_scatter.sum"],
}


def sharding(num_replicas):
    return kerasmgpu.strategy(
        num_replicas,
        shard=lambda variable: 0 if variable.path.startswith("part") else None,
        min_shard_bytes=0,
    )


def check(strategy, num_replicas):
    times = collective_times.collectives(strategy, num_replicas, 1 << 12)
    assert {one["collective"]: one["written_as"] for one in times} == WRITTEN_AS
    for one in times:
        assert one["is_right"] and one["seconds"] > 0, one


@pytest.mark.parametrize("num_replicas", [2, 3])
def test_in_shared_memory(num_replicas):
    check(sharding(num_replicas), num_replicas)


def test_as_between_gpus_of_one_process(monkeypatch, like_gpus):
    """By TensorFlow's collectives, on devices that share no memory."""
    monkeypatch.setattr(strategies, "_cross_device_ops", lambda *_: None)
    strategy = sharding(2)
    assert type(strategy.replicas) is CollectiveReplicas
    assert not strategy.replicas.shares_memory
    check(strategy, 2)


def test_wrong_values_are_noticed(monkeypatch):
    """Of a range that doesn't start at 1, which makes another sum."""
    true_range = tf.range
    monkeypatch.setattr(tf, "range", lambda *_: true_range(2.0, 4.0))
    times = collective_times.collectives(sharding(2), 2, 1 << 12)
    right = {one["collective"]: one["is_right"] for one in times}
    assert right == {
        "all_reduce": False,
        "all_gather": True,
        "reduce_scatter": False,
    }
