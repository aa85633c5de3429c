"""Passes on written nodes: collectives, turns and assignments in one order."""

import tensorflow as tf

from kerasmgpu.partitioner.lowering.collectives import CollectiveReplicas
from kerasmgpu.partitioner.mesh import Mesh
from tests.partitioner.passes.conftest import lines
from tests.partitioner.rules import planned

HOST = "/job:worker/replica:0/task:0/device:CPU:0"


def name(line):
    return line.split(" = ")[0]


def test_collectives_wait_for_those_of_earlier_phases(dumped):
    def step(x):
        mean = tf.reduce_mean(tf.sin(x), 0)
        return tf.reduce_sum(tf.cos(x - mean), 0)

    replicas = CollectiveReplicas(Mesh.on([HOST], HOST, 0, 2)).split(2)
    text = dumped(step, [None, 2], replicas=replicas)["order_collectives"]
    first, *others = lines(text, "= Collective")
    assert others
    for line in others:
        assert f", {name(first)}  on" in line
        first = line


def test_the_second_turn_waits_for_the_end_of_the_first(dumped):
    def step(x):
        return tf.reduce_sum(tf.sin(x), 0)

    text = dumped(step, [None, 2], replicas=planned.replicas(1).split(2))
    (end,) = lines(text["take_turns"], "end_of_turn_0 = NoOp(")
    before, behind = text["take_turns"].split(f"{end}\n")
    assert lines(before, "replica_0/Sin") and lines(behind, "replica_1/Sin")
    assert lines(behind, f" {name(end)}  on")


def test_assignments_wait_for_everything_else(dumped):
    total = tf.Variable([0.0, 0.0])

    def step(x):
        total.assign_add(tf.reduce_sum(x, 0))
        return tf.cos(x)

    text = dumped(step, [None, 2], repeats=True)["assign_last"]
    (computed,) = lines(text, "computed = NoOp(")
    assert "replica_0/Cos, replica_1/Cos" in computed
    assigning = lines(text, "= Assign")
    assert assigning
    for line in assigning:
        assert f" {name(computed)}  on" in line
