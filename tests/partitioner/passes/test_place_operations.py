"""Operations on rows run on each replica, those on whole values once."""

import dataclasses

import tensorflow as tf

from kerasmgpu.partitioner.lowering.collectives import CollectiveReplicas
from tests.partitioner.passes.conftest import lines
from tests.partitioner.rules import planned


def step(x):
    total = tf.reduce_sum(tf.sin(x), 0)
    return tf.cos(total)


def test_on_each_replica_and_once(dumped):
    text = dumped(step, [None, 2])["place_operations"]
    assert lines(text, "= Sin(")[0].endswith("on each replica")
    assert lines(text, "= Cos(")[0].endswith("once")


def test_on_copies_where_devices_do_not_share_memory(dumped):
    mesh = dataclasses.replace(planned.replicas(2).mesh, shares_memory=False)
    replicas = CollectiveReplicas(mesh)
    text = dumped(step, [None, 2], replicas=replicas)["place_operations"]
    assert lines(text, "= Cos(")[0].endswith("on each replica's copies")
