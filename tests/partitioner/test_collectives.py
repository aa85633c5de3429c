"""How replicas of several workers meet, as it is written."""

import itertools

import tensorflow as tf
from tensorflow.python.eager import context

from kerasmgpu.partitioner.collectives import CollectiveReplicas
from kerasmgpu.partitioner.function import Partitioned
from tests import conftest  # noqa: F401 - Eight logical CPU devices.

DEVICES = [f"/job:localhost/replica:0/task:0/device:CPU:{n}" for n in range(2)]


def written(step, num_workers):
    """`{name: NodeDef}` of what the first of several workers runs."""
    replicas = CollectiveReplicas(
        DEVICES, DEVICES[0], first=0, total=num_workers * len(DEVICES)
    )
    program = Partitioned(step, replicas).program((tf.TensorSpec([None, 3]),))
    name = program.written().name
    definition = context.context().get_function_def(name)
    return {node.name: node for node in definition.node_def}


def needed(nodes, name):
    """Names of all nodes that one waits for."""
    found, waiting = set(), [name]
    while waiting:
        for given in nodes[waiting.pop()].input:
            source = given.lstrip("^").split(":")[0]
            if source in nodes and source not in found:
                found.add(source)
                waiting.append(source)
    return found


def collectives(nodes):
    return [n for n in nodes if nodes[n].op == "CollectiveReduceV2"]


def test_what_only_sums_runs_on_several_threads():
    """On one, it would wait in the first device's sum for the second's."""
    for num_workers in (1, 2):
        nodes = written(lambda x: tf.reduce_sum(x, 0), num_workers)
        sums = collectives(nodes)
        assert len(sums) >= 2
        for name in sums:
            ops = {nodes[other].op for other in needed(nodes, name)}
            assert "Switch" in ops


def test_hosts_and_replicas_meet_in_one_order():
    def step(x):
        rows = tf.sort(x, 0)
        return tf.reduce_sum(x, 0), rows, tf.reduce_max(tf.sin(x), 0)

    nodes = written(step, num_workers=2)
    found = collectives(nodes)
    of_hosts = [name for name in found if name.startswith("host")]
    of_replicas = [name for name in found if name not in of_hosts]
    assert of_hosts and of_replicas
    for one, other in itertools.product(of_hosts, of_replicas):
        assert one in needed(nodes, other) or other in needed(nodes, one)
