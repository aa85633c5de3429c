"""Timed programs send what they say, give the right values, and are judged."""

import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu import strategies
from kerasmgpu.doctor.collective_checks import (
    bandwidths,
    collectives,
    judge_collectives,
)
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
    times = collectives(strategy, num_replicas, 1 << 12)
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
    assert not strategy.replicas.mesh.shares_memory
    check(strategy, 2)


def test_wrong_values_are_noticed(monkeypatch):
    """Of a range that doesn't start at 1, which makes another sum."""
    true_range = tf.range
    monkeypatch.setattr(tf, "range", lambda *_: true_range(2.0, 4.0))
    times = collectives(sharding(2), 2, 1 << 12)
    right = {one["collective"]: one["is_right"] for one in times}
    assert right == {
        "all_reduce": False,
        "all_gather": True,
        "reduce_scatter": False,
    }


@pytest.mark.parametrize(
    ("collective", "share"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875)],
)
def test_bandwidths_are_those_of_nccl_tests(collective, share):
    """Of 8 ranks and 1 GB in 10 ms."""
    algorithm, bus = bandwidths(collective, 10**9, 0.01, 8)
    assert algorithm == pytest.approx(1e11)
    assert bus == pytest.approx(share * 1e11)


H100 = {"nvlinks": 18, "nvlink_version": "4.0"}


def machine(*gpus, kind):
    """Facts of two GPUs that are connected by links of a kind."""
    return {"gpus": list(gpus), "topology": [["X", kind], [kind, "X"]]}


TWO_H100 = machine(H100, H100, kind="NV18")


def measured(seconds, is_right=True):
    one = {"collective": "all_reduce", "bytes": 256 << 20, "seconds": seconds}
    return {
        "replicas": 2,
        "devices": ["/device:GPU:0", "/device:GPU:1"],
        "times": [one | {"is_right": is_right}],
    }


def bad(found):
    return {one.key: one for one in found if one.status != "ok"}


def test_an_all_reduce_as_fast_as_its_links():
    (found,) = judge_collectives(measured(0.0008), TWO_H100, False)
    assert found.status == "ok" and "336 GB/s of 450 GB/s" in found.text


def test_a_slow_all_reduce():
    found = bad(judge_collectives(measured(0.02), TWO_H100, False))
    assert list(found) == ["collective_slow"]
    # Between machines the links aren't known.
    assert not bad(judge_collectives(measured(0.02), TWO_H100, True))


def test_wrong_sums():
    found = bad(judge_collectives(measured(0.0008, False), TWO_H100, False))
    assert found["collective_wrong"].text == "wrong values: all_reduce"
