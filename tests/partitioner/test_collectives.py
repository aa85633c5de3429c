"""Collectives between replicas of several workers, in the written graph."""

import itertools

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.lowering.collectives import CollectiveReplicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.runtime.function import Partitioned
from tests import conftest  # noqa: F401 - Eight logical CPU devices.
from tests.devices import device_name

HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
DEVICES = [
    f"/job:localhost/replica:0/task:0/device:{device_name(n)}" for n in range(2)
]


def written(step, num_workers, shape=(None, 3), like_gpus=False):
    """Returns `{name: NodeDef}` of the first worker's function."""
    mesh = Mesh.on(DEVICES, HOST, 0, num_workers, not like_gpus)
    program = Partitioned(step, CollectiveReplicas(mesh)).program(
        (tf.TensorSpec(shape),)
    )
    function = program.written().library[-1]
    return {node.name: node for node in function.node_def}


def needed(nodes, name):
    """Returns the names of all transitive inputs of a node."""
    found, waiting = set(), [name]
    while waiting:
        for given in nodes[waiting.pop()].input:
            source = given.lstrip("^").split(":")[0]
            if source in nodes and source not in found:
                found.add(source)
                waiting.append(source)
    return found


def collectives(nodes):
    return [n for n in nodes if nodes[n].op.startswith("Collective")]


def test_what_only_sums_runs_on_several_threads():
    """On one thread, the first device's sum would wait for the second's."""
    for num_workers in (1, 2):
        nodes = written(
            lambda x: tf.reduce_sum(x, 0), num_workers, like_gpus=True
        )
        sums = collectives(nodes)
        assert len(sums) >= 2
        for name in sums:
            ops = {nodes[other].op for other in needed(nodes, name)}
            assert "Switch" in ops


def test_hosts_and_replicas_meet_in_one_order():
    def step(x):
        rows = tf.sort(x, 0)
        return tf.reduce_sum(x, 0), rows, tf.reduce_max(tf.sin(x), 0)

    nodes = written(step, num_workers=2, like_gpus=True)
    found = collectives(nodes)
    of_hosts = [name for name in found if name.startswith("host")]
    of_replicas = [name for name in found if name not in of_hosts]
    assert of_hosts and of_replicas
    for one, other in itertools.product(of_hosts, of_replicas):
        assert one in needed(nodes, other) or other in needed(nodes, one)


def test_a_normalised_layer_takes_three_reductions():
    """Its mean, its variance, and both gradients; all updates take one more."""
    num_layers = 3
    weights = [tf.Variable(tf.ones([4, 4])) for _ in range(num_layers)]
    scales = [tf.Variable(tf.ones([4])) for _ in range(num_layers)]
    offsets = [tf.Variable(tf.zeros([4])) for _ in range(num_layers)]

    def step(x):
        with tf.GradientTape() as tape:
            for weight, scale, offset in zip(weights, scales, offsets):
                x = x @ weight
                mean, variance = tf.nn.moments(x, 0)
                x = tf.nn.batch_normalization(
                    x, mean, variance, offset, scale, 1e-3
                )
            loss = tf.reduce_sum(tf.tanh(x))
        variables = [*weights, *scales, *offsets]
        for variable, gradient in zip(
            variables, tape.gradient(loss, variables)
        ):
            variable.assign_sub(0.1 * gradient)

    nodes = written(step, num_workers=2, shape=(8, 4))
    assert len(collectives(nodes)) == 3 * num_layers + 1


def test_workers_send_small_sums_at_once():
    """Each sends the sum over its own replicas to every other worker."""
    for shape, op in (
        ((8, 1 << 10), "CollectiveAllToAllV2"),
        ((8, 1 << 15), "CollectiveReduceV2"),
    ):
        nodes = written(lambda x: tf.reduce_sum(x, 0), 2, shape)
        (only,) = collectives(nodes)
        assert nodes[only].op == op
        nodes = written(lambda x: tf.reduce_sum(x, 0), 2, shape, like_gpus=True)
        ops = [nodes[name].op for name in collectives(nodes)]
        assert ops == ["CollectiveReduceV2"] * len(DEVICES)


def test_large_sums_are_not_copied_into_packs():
    def sums(x):
        return tf.reduce_sum(x, 0), tf.reduce_sum(x * x, 0)

    small = written(sums, 2, (8, 1 << 10))
    assert len(collectives(small)) == 1
    large = written(sums, 2, (8, 1 << 20))
    assert len(collectives(large)) == 2
    assert not {"ConcatV2", "SplitV"} & {node.op for node in large.values()}


def test_no_collective_starts_before_the_batch_is_there():
    """At the end of the data it would be started on some workers only."""
    kernel = tf.Variable(tf.ones([3, 3]))

    def step(x):
        kernel.assign(kernel @ kernel)
        return tf.reduce_sum(x, 0)

    nodes = written(step, 2)
    (broadcast,) = (
        name
        for name in collectives(nodes)
        if not any(n in collectives(nodes) for n in needed(nodes, name))
    )
    assert any(nodes[n].op == "MatMul" for n in needed(nodes, broadcast))
    assert "batch" in needed(nodes, broadcast)


@pytest.mark.parametrize("like_gpus", [False, True])
def test_gpus_send_no_int32(like_gpus):
    """TensorFlow has no such collective on GPUs (2.18 to 2.21)."""

    def step(batch):
        return tf.reduce_sum(tf.cast(batch, tf.int32))

    nodes = written(step, 1, (4, 3), like_gpus)
    types = {
        node.attr["T"].type
        for node in nodes.values()
        if node.op == "CollectiveReduceV2"
    }
    assert types == {(tf.int64 if like_gpus else tf.int32).as_datatype_enum}


@pytest.mark.parametrize("jit_compile", [False, True])
def test_no_member_is_left_out_where_one_replica_needs_the_sum(jit_compile):
    """Neither where XLA compiles what is made of it, nor where TensorFlow inlines.

    It drops what no result and no control output of the function needs.
    """

    def step(x):
        values, rows = tf.unique(tf.cast(x[:, 0], tf.int32))
        sums = tf.math.unsorted_segment_sum(x, rows, tf.size(values))
        return tf.reduce_sum(x, 0), tf.reduce_sum(sums * sums)

    mesh = Mesh.on(DEVICES, HOST, shares_memory=False)
    program = Partitioned(
        step, CollectiveReplicas(mesh), jit_compile=jit_compile
    ).program((tf.TensorSpec((None, 3)),))
    function = program.written().library[-1]
    nodes = {node.name: node for node in function.node_def}
    ends = [*function.ret.values(), *function.control_ret.values()]
    kept = {one.split(":")[0] for one in ends}
    kept |= set().union(*(needed(nodes, name) for name in kept))
    sums = collectives(nodes)
    assert len(sums) == 2 * len(DEVICES)
    assert kept.issuperset(sums)
